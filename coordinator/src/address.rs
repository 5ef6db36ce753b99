//! The store address from `--store`: parsed once, and never printed with a password.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The default ports of Redis and of Sentinel.
const PORTS: (u16, u16) = (6379, 26379);

/// The address of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreAddress {
    /// A file of the embedded store.
    Sqlite(PathBuf),
    /// One or more Redis servers.
    Redis(Box<RedisAddress>),
}

/// The address of a Redis, or of several servers that form one store.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisAddress {
    /// The topology of the servers.
    pub topology: Topology,
    /// The named servers: the one server, the sentinels, or some of the cluster. Empty for a socket.
    pub servers: Vec<ServerAddress>,
    /// Whether to use TLS.
    pub tls: bool,
    /// The user name.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
    /// The number of the database.
    pub database: i64,
    /// The file of a certificate authority that is trusted instead of the system's.
    pub authority: Option<PathBuf>,
    /// Our client certificate, for a Redis that requires one.
    pub identity: Option<CertificateFiles>,
    /// Whether to delete data of an earlier build, except the keys of hosts and the invites.
    pub discard_old: bool,
}

/// The files of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by its chain.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// The topology of a Redis address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    One,
    /// The master that sentinels monitor under this name.
    Sentinel(String),
    /// A cluster.
    Cluster,
    /// One server that listens on this Unix socket.
    Socket(PathBuf),
}

/// One server. Its text is `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerAddress {
    /// Its name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// Why a text is not a store address. No variant repeats text that may be a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The scheme is unknown.
    #[error(
        "it must be sqlite:PATH, redis://HOST:PORT, redis+sentinel://HOST:PORT,HOST:PORT/MASTER, \
         redis+cluster://HOST:PORT,HOST:PORT or redis+unix:///PATH; with TLS rediss:// instead of redis://"
    )]
    Kind,
    /// The path of the file is missing.
    #[error("sqlite: needs the path of a file")]
    NoPath,
    /// The path of the socket is missing or not absolute.
    #[error(
        "redis+unix:// needs the absolute path of a socket, as in redis+unix:///run/redis/redis.sock"
    )]
    NoSocket,
    /// A server is not `HOST:PORT`.
    #[error(
        "'{0}' is not HOST:PORT; a '/', '?', '#', '@' or ',' in a password must be written %2F, %3F, %23, %40 or %2C"
    )]
    ServerAddress(String),
    /// Several servers are given with a scheme for one.
    #[error(
        "for several servers, write redis+cluster://HOST:PORT,HOST:PORT or redis+sentinel://HOST:PORT,HOST:PORT/MASTER"
    )]
    Several,
    /// The name of the master is missing.
    #[error(
        "the name of the master that the sentinels watch is missing: redis+sentinel://HOST:PORT,HOST:PORT/MASTER"
    )]
    NoMaster,
    /// The database is not a number.
    #[error("'{0}' is not the number of a database")]
    Database(String),
    /// A cluster has only database 0.
    #[error("a cluster has only the database 0")]
    ClusterDatabase,
    /// The user or password is not percent-encoded correctly.
    #[error(
        "in the user or password a '%' is not followed by two hexadecimal digits, or they are not UTF-8; write % as %25"
    )]
    Escape,
    /// The address has a query or a fragment.
    #[error(
        "c3po accepts no options after '?' or '#'; set the certificate authority of a Redis with --redis-ca"
    )]
    Options,
}

impl FromStr for StoreAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.split_once(':') {
            Some(("sqlite", "")) => Err(AddressError::NoPath),
            Some(("sqlite", path)) => Ok(Self::Sqlite(PathBuf::from(path))),
            _ => Ok(Self::Redis(Box::new(text.parse()?))),
        }
    }
}

/// The scheme of an address, before its servers are parsed.
#[derive(Clone, Copy, PartialEq)]
enum Scheme {
    One,
    Sentinel,
    Cluster,
    Socket,
}

impl FromStr for RedisAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::Kind)?;
        let (tls, scheme) = match scheme {
            "redis" => (false, Scheme::One),
            "rediss" => (true, Scheme::One),
            "redis+sentinel" => (false, Scheme::Sentinel),
            "rediss+sentinel" => (true, Scheme::Sentinel),
            "redis+cluster" => (false, Scheme::Cluster),
            "rediss+cluster" => (true, Scheme::Cluster),
            "redis+unix" => (false, Scheme::Socket),
            _ => return Err(AddressError::Kind),
        };
        // Split at the last `@`, because a password may contain an unescaped one. Part of the password must not be taken for
        // a host.
        let (login, rest) = rest
            .rsplit_once('@')
            .map_or((None, rest), |(login, rest)| (Some(login), rest));
        if rest.contains(['?', '#']) {
            return Err(AddressError::Options);
        }
        let (user, password) = login.map_or(Ok((None, None)), read_login)?;
        let (topology, servers, database) = read_place(scheme, rest)?;
        Ok(Self {
            topology,
            servers,
            tls,
            user,
            password,
            database,
            authority: None,
            identity: None,
            discard_old: false,
        })
    }
}

fn read_login(login: &str) -> Result<(Option<String>, Option<String>), AddressError> {
    let (user, password) = login
        .split_once(':')
        .map_or((login, None), |(user, password)| (user, Some(password)));
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    Ok((
        given(unescape(user)?),
        password.map(unescape).transpose()?.and_then(given),
    ))
}

/// Decodes percent-encoded characters such as `%41`.
fn unescape(text: &str) -> Result<String, AddressError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let (digits, after) = after.split_at_checked(2).ok_or(AddressError::Escape)?;
        let digits = std::str::from_utf8(digits).map_err(|_| AddressError::Escape)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| AddressError::Escape)?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| AddressError::Escape)
}

/// Returns the topology, the named servers and the number of the database.
fn read_place(
    scheme: Scheme,
    text: &str,
) -> Result<(Topology, Vec<ServerAddress>, i64), AddressError> {
    if scheme == Scheme::Socket {
        let names_file = text.starts_with('/') && !text.ends_with('/');
        let socket = names_file.then(|| Topology::Socket(PathBuf::from(text)));
        return Ok((socket.ok_or(AddressError::NoSocket)?, Vec::new(), 0));
    }
    let (servers, path) = text.split_once('/').unwrap_or((text, ""));
    let (topology, database) = read_path(scheme, path)?;
    Ok((topology, read_servers(scheme, servers)?, database))
}

fn read_path(scheme: Scheme, path: &str) -> Result<(Topology, i64), AddressError> {
    let (first, second) = path.split_once('/').unwrap_or((path, ""));
    match scheme {
        Scheme::One => Ok((Topology::One, read_database(path)?)),
        Scheme::Sentinel if first.is_empty() => Err(AddressError::NoMaster),
        Scheme::Sentinel => Ok((Topology::Sentinel(first.to_owned()), read_database(second)?)),
        Scheme::Cluster if read_database(path)? != 0 => Err(AddressError::ClusterDatabase),
        Scheme::Cluster => Ok((Topology::Cluster, 0)),
        Scheme::Socket => Err(AddressError::NoSocket),
    }
}

fn read_database(text: &str) -> Result<i64, AddressError> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse::<u32>()
        .map(i64::from)
        .map_err(|_| AddressError::Database(text.to_owned()))
}

fn read_servers(scheme: Scheme, text: &str) -> Result<Vec<ServerAddress>, AddressError> {
    let port = if scheme == Scheme::Sentinel {
        PORTS.1
    } else {
        PORTS.0
    };
    let servers = text
        .split(',')
        .map(|server| ServerAddress::parse(server, port))
        .collect::<Result<Vec<_>, _>>()?;
    if scheme == Scheme::One && servers.len() > 1 {
        return Err(AddressError::Several);
    }
    Ok(servers)
}

impl ServerAddress {
    /// Parses `HOST`, `HOST:PORT` or `[IPV6]:PORT`.
    fn parse(text: &str, default: u16) -> Result<Self, AddressError> {
        let wrong = || AddressError::ServerAddress(text.to_owned());
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (
                host,
                rest.strip_prefix(':')
                    .or(rest.is_empty().then_some(""))
                    .ok_or_else(wrong)?,
            ),
            None => text.split_once(':').unwrap_or((text, "")),
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace()) || text.ends_with(':') {
            return Err(wrong());
        }
        let port = if port.is_empty() {
            default
        } else {
            port.parse().map_err(|_| wrong())?
        };
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Redis(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for RedisAddress {
    /// Writes the address without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = self
            .servers
            .iter()
            .map(ServerAddress::to_string)
            .collect::<Vec<_>>()
            .join(",");
        let (kind, master) = match &self.topology {
            Topology::One => ("", String::new()),
            Topology::Sentinel(master) => ("+sentinel", format!("/{master}")),
            Topology::Cluster => ("+cluster", String::new()),
            Topology::Socket(path) => ("+unix", path.display().to_string()),
        };
        write!(
            f,
            "redis{}{kind}://{servers}{master}",
            if self.tls { "s" } else { "" }
        )?;
        if self.database == 0 {
            Ok(())
        } else {
            write!(f, "/{}", self.database)
        }
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_address_is_read() {
        let check = |text: &str, expected: &str| {
            let address = text
                .parse::<StoreAddress>()
                .map(|address| address.to_string());
            assert_eq!(address.as_deref(), Ok(expected), "{text}");
        };
        check("sqlite:/var/c3po.db", "sqlite:/var/c3po.db");
        check("redis://nas", "redis://nas:6379");
        check("redis://nas:7000/3", "redis://nas:7000/3");
        check("redis://nas:7000/", "redis://nas:7000");
        check("redis://[::1]:7000/0", "redis://[::1]:7000");
        check("redis://[::1]", "redis://[::1]:6379");
        check("rediss://user:word@nas", "rediss://nas:6379");
        check(
            "redis+sentinel://a,b:1/mymaster",
            "redis+sentinel://a:26379,b:1/mymaster",
        );
        check(
            "rediss+sentinel://:word@a/mymaster/2",
            "rediss+sentinel://a:26379/mymaster/2",
        );
        check(
            "redis+cluster://a,b:7001,[::2]:7002",
            "redis+cluster://a:6379,b:7001,[::2]:7002",
        );
        check("rediss+cluster://a/0", "rediss+cluster://a:6379");
        check(
            "redis+unix://user:word@/run/redis.sock",
            "redis+unix:///run/redis.sock",
        );
    }

    #[test]
    fn a_login_is_read_as_urls_have_it() {
        let check = |text: &str, user: Option<&str>, password: Option<&str>| {
            let address: RedisAddress = text.parse().expect(text);
            assert_eq!(
                (address.user.as_deref(), address.password.as_deref()),
                (user, password),
                "{text}"
            );
        };
        check("redis://nas", None, None);
        check("redis://:word@nas", None, Some("word"));
        check(
            "redis://user:w%40rd%2F%25@nas",
            Some("user"),
            Some("w@rd/%"),
        );
        check(
            "redis://user:w@rd/x?y#z@nas",
            Some("user"),
            Some("w@rd/x?y#z"),
        );
        check("redis+cluster://user@a,b", Some("user"), None);
        check("redis+unix://:word@/run/redis.sock", None, Some("word"));
    }

    #[test]
    fn a_text_that_is_no_address_is_refused_with_a_correct_example() {
        let check = |text: &str, expected: &str| {
            let refused = text.parse::<StoreAddress>().expect_err(text).to_string();
            assert!(refused.contains(expected), "{text}: {refused}");
            assert!(!refused.contains("sesame"), "{text}: {refused}");
        };
        for text in [
            "",
            "nas",
            "redis",
            "redis:",
            "redis:nas",
            "redis:/:sesame@x",
            "sesame://a:sesame@",
            "redis.db",
            "rediss+unix:///run/redis.sock",
        ] {
            check(text, "it must be sqlite:PATH, redis://HOST:PORT");
        }
        check("sqlite:", "path of a file");
        check("redis://", "'' is not HOST:PORT");
        check("redis://:sesame@:6379", "':6379' is not HOST:PORT");
        check(
            "redis://user:sesame@nas:port",
            "'nas:port' is not HOST:PORT",
        );
        check("redis://nas:70000", "'nas:70000'");
        check("redis://::1:6379", "'::1:6379'");
        check("redis://a,b", "redis+cluster://HOST:PORT,HOST:PORT");
        check("redis+cluster://a,", "'' is not HOST:PORT");
        check("redis+cluster://a/1", "only the database 0");
        check("redis://nas/one", "'one' is not the number");
        check("redis+sentinel://a:1,b:2", "name of the master");
        check("redis+sentinel://a/mymaster/x", "'x' is not the number");
        check("redis://:sesame%4@nas", "%25");
        check("redis://:sesame%ff@nas", "%25");
        check("rediss://nas#insecure", "--redis-ca");
        for text in [
            "redis+unix://",
            "redis+unix://redis.sock",
            "redis+unix:///run/",
        ] {
            check(text, "absolute path of a socket");
        }
    }
}
