//! The configuration: flags and environment, read once at startup. No other file reads the environment.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use c3po_shared::limits::{AUDIT_ENTRIES, LOOP_MESSAGES, SENDS_PER_MINUTE};
use clap::Args;
use clap::builder::BoolishValueParser;

pub use crate::address::{
    AddressError, CertificateFiles, RedisAddress, ServerAddress, StoreAddress, Topology,
};
use crate::bytes::bytes;
pub use crate::fleet::{Fleet, FleetError};
use crate::listen::listen_address;
pub use crate::ntfy_flags::NtfyFlags;
pub use crate::values::{Secret, Tls, TlsError};
use crate::values::{
    TokenError, check_token, default_data_dir, message_life, quota, tls, url_of_hosts,
};

/// The file of the embedded store, in the data folder.
const DATABASE: &str = "c3po.db";
/// The settings of the command line.
#[derive(Debug, Args)]
pub struct ServeFlags {
    /// Address and port to listen on; 0.0.0.0:8420 serves the network
    #[arg(long, env = "C3PO_LISTEN", default_value = "127.0.0.1:8420", global = true, value_parser = listen_address)]
    pub listen: SocketAddr,
    /// Address of the store: sqlite:PATH, redis://HOST:PORT, redis+sentinel://HOST:PORT,HOST:PORT/MASTER,
    /// redis+cluster://HOST:PORT,HOST:PORT or redis+unix:///PATH; rediss for TLS [default: sqlite in the user's data folder]
    #[arg(long, env = "C3PO_STORE", hide_env_values = true)]
    pub store: Option<Secret>,
    /// The fleet that this coordinator serves: a namespace of agents, messages and keys in the store
    #[arg(long, env = "C3PO_FLEET", default_value_t)]
    pub fleet: Fleet,
    /// Delete the data of an earlier build from this Redis, except the keys of hosts and the invites
    #[arg(long, env = "C3PO_DISCARD_OLD", value_parser = BoolishValueParser::new())]
    pub discard_old: bool,
    /// An older name for --store redis://…
    #[arg(long, env = "REDIS_URL", hide = true, hide_env_values = true)]
    pub redis_url: Option<Secret>,
    /// The certificate authority of a Redis with TLS, as a PEM file [default: those of the system]
    #[arg(long, env = "C3PO_REDIS_CA")]
    pub redis_ca: Option<PathBuf>,
    /// Our certificate for a Redis that requires one from clients, as a PEM file
    #[arg(long, env = "C3PO_REDIS_CERT", requires = "redis_key")]
    pub redis_cert: Option<PathBuf>,
    /// The key of --redis-cert, as a PEM file
    #[arg(long, env = "C3PO_REDIS_KEY", requires = "redis_cert")]
    pub redis_key: Option<PathBuf>,
    /// The folder for the coordinator's own files [default: c3po in the user's data folder]
    #[arg(long, env = "C3PO_DATA_DIR", global = true)]
    pub data_dir: Option<PathBuf>,
    /// TLS for clients: auto (a certificate of the coordinator's own), off, or CERT,KEY as two PEM files
    /// [default: off on loopback and with --open, else auto]
    #[arg(long, env = "C3PO_TLS")]
    pub tls: Option<Tls>,
    /// Sends per minute and agent; 0 for no limit
    #[arg(long, env = "C3PO_RATE_LIMIT", default_value_t = SENDS_PER_MINUTE)]
    pub rate_limit: u32,
    /// How long a message stays in an inbox before it expires, such as 12h or 7d: from 1 hour to 30 days
    #[arg(long, env = "C3PO_MESSAGE_LIFE", default_value = "7d", value_parser = message_life)]
    pub message_life: Duration,
    /// Messages and replies between two agents within 10 minutes without a person; 0 for no limit
    #[arg(long, env = "C3PO_LOOP_MESSAGES", default_value_t = LOOP_MESSAGES)]
    pub loop_messages: u32,
    /// Bytes of messages that may be stored with one key within 24 hours, such as 256MB or 2GB; clients without a key share
    /// one quota; 0 for no limit
    #[arg(long, env = "C3PO_STORE_QUOTA", default_value = "256MB", value_parser = quota)]
    pub store_quota: u64,
    /// Size limit of the embedded store, such as 20GB; above it, new messages are refused [default: all of its disk except
    /// 64MB]
    #[arg(long, env = "C3PO_STORE_MAX", value_parser = bytes)]
    pub store_max: Option<u64>,
    /// Connection limit; further connections are rejected [default: limited by a quarter of the memory, and by the
    /// descriptors of this process]
    #[arg(long, env = "C3PO_MAX_CONNECTIONS")]
    pub max_connections: Option<usize>,
    /// A shared token, in addition to the keys of hosts; it grants every right
    #[arg(long, env = "C3PO_TOKEN", hide_env_values = true)]
    pub token: Option<Secret>,
    /// Serve the network without credentials: anyone on it can act as any agent
    #[arg(long, env = "C3PO_OPEN", value_parser = BoolishValueParser::new())]
    pub open: bool,
    /// The policy file, with rules about messages between agents [default: policy.toml in the data folder, if there is one]
    #[arg(long, env = "C3PO_POLICY")]
    pub policy: Option<PathBuf>,
    /// How many entries the audit keeps; 0 for no audit
    #[arg(long, env = "C3PO_AUDIT_ENTRIES", default_value_t = AUDIT_ENTRIES)]
    pub audit_entries: u64,
    /// Require credentials on loopback, too
    #[arg(long, env = "C3PO_CLOSED", value_parser = BoolishValueParser::new(), conflicts_with = "open")]
    pub closed: bool,
    /// Require a login to answer questions for people, on an open coordinator of this machine, too
    #[arg(long, env = "C3PO_ANSWERS_NEED_LOGIN", value_parser = BoolishValueParser::new())]
    pub answers_need_login: bool,
    /// URL of this coordinator for hosts, used in the commands of invites, such as https://nas:8420 [default: made of
    /// --listen]
    #[arg(long, env = "C3PO_PUBLIC_URL", value_parser = url_of_hosts)]
    pub public_url: Option<String>,
    /// The beginning of the commands for this coordinator that it prints, such as `docker compose exec coordinator
    /// c3po-coordinator` [default: as this program was called]
    #[arg(long, env = "C3PO_COMMAND", global = true)]
    pub command: Option<String>,
    /// Host names of an open coordinator, separated by commas, in addition to addresses and names of the own network
    #[arg(long, env = "C3PO_ALLOWED_HOSTS", value_delimiter = ',')]
    pub allowed_hosts: Vec<String>,
    #[command(flatten)]
    pub ntfy: NtfyFlags,
    /// Which log lines to write, such as info or c3po_coordinator=debug
    #[arg(
        long,
        env = "C3PO_LOG",
        default_value = "info,rmcp=error",
        global = true
    )]
    pub log: String,
}

/// The configuration of the server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address of the store.
    pub store: StoreAddress,
    /// The fleet to serve.
    pub fleet: Fleet,
    /// The folder for the coordinator's own files. It contains the database unless the store is elsewhere.
    pub data_dir: PathBuf,
    /// Whether clients use TLS, and which certificate.
    pub tls: Tls,
    /// Sends per minute and agent; `None` for no limit.
    pub rate_limit: Option<u32>,
    /// How long a message stays in an inbox before it expires.
    pub message_life: Duration,
    /// Messages and replies between two agents within 10 minutes without a person; `None` for no limit.
    pub loop_messages: Option<u32>,
    /// Bytes of messages that may be stored with one key within 24 hours; `None` for no limit.
    pub store_quota: Option<u64>,
    /// The limit of message bytes in the embedded store; `None` if only its disk limits it.
    pub store_max: Option<u64>,
    /// The connection limit; `None` for a limit by memory and descriptors.
    pub max_connections: Option<usize>,
    /// The shared token, in addition to keys.
    pub token: Option<Secret>,
    /// The policy file, if one was configured.
    pub policy: Option<PathBuf>,
    /// How many entries the audit keeps; `None` for no audit.
    pub audit_entries: Option<u64>,
    /// Whether clients without a credential are admitted.
    pub is_open: bool,
    /// Whether answers for people need a login even if this machine alone reaches an open coordinator.
    pub answers_need_login: bool,
    /// The configured URL of this coordinator, if any.
    pub public_url: Option<String>,
    /// The configured beginning of commands for this coordinator, if any.
    pub command: Option<String>,
    /// Further host names of an open coordinator.
    pub allowed_hosts: Vec<String>,
    /// Pushes to one person, unless there is a `notify.toml`.
    pub ntfy: NtfyFlags,
}

/// Why the settings are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The shared token cannot be one.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The address of the store is malformed.
    #[error("the address of the store (--store or C3PO_STORE) cannot be read: {0}")]
    Store(AddressError),
    /// There are certificates for a store without TLS.
    #[error(
        "--redis-ca, --redis-cert and --redis-key (or C3PO_REDIS_CA, _CERT and _KEY) are for a Redis with TLS, and the \
         store is {0}: write rediss:// instead of redis://"
    )]
    NoTls(StoreAddress),
    /// There is no default data folder.
    #[error("neither XDG_DATA_HOME nor HOME is set: pass the coordinator's folder with --data-dir")]
    NoDataFolder,
}

impl ServeFlags {
    /// Returns the folder for the coordinator's own files.
    pub fn data_dir(&self) -> Result<PathBuf, ConfigError> {
        match &self.data_dir {
            Some(folder) => Ok(folder.clone()),
            None => default_data_dir(std::env::var_os("XDG_DATA_HOME"), std::env::var_os("HOME"))
                .ok_or(ConfigError::NoDataFolder),
        }
    }

    /// Validates the settings and converts them into a configuration.
    pub fn into_config(self) -> Result<Config, ConfigError> {
        self.token
            .as_ref()
            .map_or(Ok(()), |token| check_token(token.reveal()))?;
        let data_dir = self.data_dir()?;
        let store = match self.store.or(self.redis_url) {
            Some(store) => store.reveal().parse().map_err(ConfigError::Store)?,
            None => StoreAddress::Sqlite(data_dir.join(DATABASE)),
        };
        let identity = self
            .redis_cert
            .zip(self.redis_key)
            .map(|(certificate, key)| CertificateFiles { certificate, key });
        let mut store = with_certificates(store, self.redis_ca, identity)?;
        if let StoreAddress::Redis(address) = &mut store {
            address.discard_old = self.discard_old;
        }
        Ok(Config {
            store,
            fleet: self.fleet,
            data_dir,
            tls: tls(self.tls, self.listen.ip(), self.open, self.closed),
            rate_limit: Some(self.rate_limit).filter(|limit| *limit > 0),
            message_life: self.message_life,
            loop_messages: Some(self.loop_messages).filter(|limit| *limit > 0),
            store_quota: Some(self.store_quota).filter(|limit| *limit > 0),
            store_max: self.store_max.filter(|max| *max > 0),
            max_connections: self.max_connections,
            is_open: is_open(self.listen, self.token.is_some(), self.open, self.closed),
            token: self.token,
            policy: self.policy,
            audit_entries: Some(self.audit_entries).filter(|entries| *entries > 0),
            answers_need_login: self.answers_need_login,
            public_url: self.public_url,
            command: self.command,
            allowed_hosts: self.allowed_hosts,
            ntfy: self.ntfy,
        })
    }
}

/// Returns whether clients without a credential are admitted. They are with `--open`, and on loopback unless there is a token
/// or `--closed`.
fn is_open(listen: SocketAddr, has_token: bool, open: bool, closed: bool) -> bool {
    open || (listen.ip().is_loopback() && !has_token && !closed)
}

/// Adds the TLS files to the address of the store.
fn with_certificates(
    store: StoreAddress,
    authority: Option<PathBuf>,
    identity: Option<CertificateFiles>,
) -> Result<StoreAddress, ConfigError> {
    match store {
        store if authority.is_none() && identity.is_none() => Ok(store),
        StoreAddress::Redis(address) if address.tls => {
            Ok(StoreAddress::Redis(Box::new(RedisAddress {
                authority,
                identity,
                ..*address
            })))
        }
        other => Err(ConfigError::NoTls(other)),
    }
}

#[cfg(test)]
mod tests {
    use c3po_shared::limits::{MESSAGE_LIFE, STORE_QUOTA};
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        settings: ServeFlags,
    }

    fn settings(arguments: &[&str]) -> ServeFlags {
        Line::parse_from([&["c3po-coordinator"], arguments].concat()).settings
    }

    #[test]
    fn the_network_is_closed_unless_a_flag_opens_it() {
        let check = |arguments: &[&str], expected: bool| {
            let config = settings(&[&["--store", "sqlite:x.db"], arguments].concat())
                .into_config()
                .expect("valid");
            assert_eq!(config.is_open, expected, "{arguments:?}");
        };
        check(&[], true);
        check(&["--closed"], false);
        check(&["--token", "0123456789abcdef"], false);
        check(&["--listen", "0.0.0.0:8420"], false);
        check(&["--listen", "192.168.1.7:8420"], false);
        check(&["--listen", "0.0.0.0:8420", "--open"], true);
        check(
            &[
                "--listen",
                "0.0.0.0:8420",
                "--token",
                "0123456789abcdef",
                "--open",
            ],
            true,
        );
        assert!(Line::try_parse_from(["c3po-coordinator", "--open", "--closed"]).is_err());
    }

    #[test]
    fn the_network_is_served_with_tls_by_default() {
        let check = |arguments: &[&str], expected: Tls| {
            let token = ["--token", "0123456789abcdef", "--store", "sqlite:x.db"];
            let config = settings(&[&token[..], arguments].concat())
                .into_config()
                .expect("valid");
            assert_eq!(config.tls, expected, "{arguments:?}");
        };
        let network = "--listen=0.0.0.0:8420";
        check(&[], Tls::Off);
        check(&["--listen=[::1]:8420"], Tls::Off);
        check(&["--closed"], Tls::Auto);
        check(&["--closed", "--tls=off"], Tls::Off);
        check(&["--tls=auto"], Tls::Auto);
        check(&[network], Tls::Auto);
        check(&[network, "--open"], Tls::Off);
        check(&[network, "--open", "--tls=auto"], Tls::Auto);
        check(&[network, "--tls=off"], Tls::Off);
        let files = CertificateFiles {
            certificate: "c.pem".into(),
            key: "k.pem".into(),
        };
        check(&[network, "--tls=c.pem, k.pem"], Tls::Files(files));
        for text in ["", "on", "c.pem", "c.pem,", ","] {
            assert_eq!(text.parse::<Tls>(), Err(TlsError), "{text}");
        }
    }

    #[test]
    fn the_coordinators_files_are_in_the_data_folder_of_its_user() {
        let check = |data: Option<&str>, home: Option<&str>, expected: Option<&str>| {
            let folder = default_data_dir(data.map(Into::into), home.map(Into::into));
            assert_eq!(folder, expected.map(PathBuf::from));
        };
        check(Some("/data"), Some("/home/a"), Some("/data/c3po"));
        check(Some(""), Some("/home/a"), Some("/home/a/.local/share/c3po"));
        check(None, None, None);
        let config = settings(&["--data-dir", "/var/c3po"])
            .into_config()
            .expect("valid");
        assert_eq!(config.store.to_string(), "sqlite:/var/c3po/c3po.db");
    }

    #[test]
    fn passwords_and_tokens_are_never_printed() {
        let settings = settings(&[
            "--store",
            "redis://user:hunter2@nas:6379/0",
            "--token",
            "0123456789abcdef",
        ]);
        let config = settings.into_config().expect("valid");
        let printed = format!("{config:?} {}", config.store);
        assert!(
            !printed.contains("hunter2") && !printed.contains("0123456789abcdef"),
            "{printed}"
        );
        assert!(printed.contains("redis://nas:6379"), "{printed}");
    }

    #[test]
    fn a_refused_value_is_not_printed() {
        let check = |arguments: &[&str], part: &str| {
            let refused = Line::try_parse_from([&["c3po-coordinator"], arguments].concat())
                .map_err(|error| error.to_string())
                .and_then(|line| {
                    line.settings
                        .into_config()
                        .map_err(|error| format!("{error} {error:?}"))
                })
                .expect_err("it is refused");
            assert!(
                refused.contains(part) && !refused.contains("hunter2"),
                "{refused}"
            );
        };
        check(
            &["--store", "nedis://user:hunter2@nas"],
            "it must be sqlite:PATH",
        );
        check(&["--redis-url", "redis://user:hunter2@nas:x"], "'nas:x'");
        check(&["--token", "hunter2"], "at least 16 characters");
        for other in [
            "c3po_0a1b2c3d_hunter2",
            "c3po-login_0a1b2c3d_hunter2",
            "'c3po_0a1b2c3d_hunter2'",
        ] {
            check(&["--token", other], "key of a host");
        }
    }

    #[test]
    fn certificates_are_for_a_redis_with_tls() {
        let with = |store| {
            settings(&["--redis-ca", "ca.pem", "--store", store])
                .into_config()
                .map(|config| config.store)
        };
        let Ok(StoreAddress::Redis(address)) = with("rediss+cluster://nas") else {
            panic!("it is one")
        };
        assert_eq!(address.authority, Some("ca.pem".into()));
        let both = settings(&[
            "--redis-cert",
            "c.pem",
            "--redis-key",
            "k.pem",
            "--store",
            "rediss://nas",
        ])
        .into_config();
        let Ok(Config {
            store: StoreAddress::Redis(address),
            ..
        }) = both
        else {
            panic!("it is one")
        };
        assert_eq!(
            address.identity.map(|identity| identity.key),
            Some("k.pem".into())
        );
        assert!(Line::try_parse_from(["c3po-coordinator", "--redis-cert", "c.pem"]).is_err());
        for store in ["redis://user:hunter2@nas", "sqlite:x"] {
            let refused = with(store).expect_err("no TLS").to_string();
            assert!(
                refused.contains("rediss://") && !refused.contains("hunter2"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        let config = |words: &[&str]| {
            settings(&[words, &["--store", "sqlite:x"]].concat())
                .into_config()
                .expect("valid")
        };
        let limits = |config: Config| (config.rate_limit, config.loop_messages, config.store_quota);
        assert_eq!(
            limits(config(&[])),
            (Some(200), Some(60), Some(STORE_QUOTA))
        );
        let none = [
            "--rate-limit",
            "0",
            "--loop-messages",
            "0",
            "--store-quota",
            "0",
        ];
        assert_eq!(limits(config(&none)), (None, None, None));
        let some = [
            "--rate-limit",
            "7",
            "--loop-messages",
            "8",
            "--store-quota",
            "2GB",
        ];
        assert_eq!(
            limits(config(&some)),
            (Some(7), Some(8), Some(2_000_000_000))
        );
        assert!(quota("999kB").is_err() && quota("1MB").is_ok());
    }

    #[test]
    fn messages_live_a_week_by_default() {
        let days = |days: u64| Duration::from_secs(days * 24 * 3_600);
        assert_eq!(settings(&[]).message_life, MESSAGE_LIFE);
        for (text, expected) in [
            ("1h", days(1) / 24),
            ("36h", days(1) * 3 / 2),
            ("30d", days(30)),
        ] {
            assert_eq!(message_life(text), Ok(expected), "{text}");
        }
        for text in ["0", "59m", "31d", "721h", "forever", ""] {
            assert!(message_life(text).is_err(), "{text}");
        }
    }
}
