//! Why a Redis cannot be the store, and what to do about it.

use super::key_names::SCHEMA;

/// Why a Redis cannot be the store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The certificates that we were given cannot be used.
    #[error("cannot use the certificate files {files} (--redis-ca, --redis-cert, --redis-key): {reason}")]
    Certificates {
        /// Which files.
        files: String,
        /// Why not.
        reason: String,
    },
    /// It has a certificate that nobody vouches for.
    #[error(
        "the Redis at {address} cannot be trusted: {reason}; say which certificate authority it has with --redis-ca \
         FILE or C3PO_REDIS_CA, and see that its certificate names the host as it is addressed"
    )]
    Untrusted {
        /// Where.
        address: String,
        /// What is wrong with its certificate.
        reason: String,
    },
    /// It wants to know who we are.
    #[error(
        "the Redis at {address} asks its clients for a certificate: name ours with --redis-cert FILE and --redis-key \
         FILE, or set tls-auth-clients no there ({reason})"
    )]
    AsksForCertificate {
        /// Where.
        address: String,
        /// What it said.
        reason: String,
    },
    /// Nothing answers there as Redis does.
    #[error("no Redis answers at {address}: {reason}")]
    Unreachable {
        /// Where.
        address: String,
        /// What happened instead.
        reason: String,
    },
    /// It answers, and does not let us in or do what we need.
    #[error(
        "the Redis at {address} refuses this coordinator: {reason}; check the user, the password and the database in its \
         URL, that it is a cluster where the URL has redis+cluster, and that its ACL has the permissions in docs/REDIS.md"
    )]
    Refused {
        /// Where.
        address: String,
        /// What it said.
        reason: String,
    },
    /// It has no memory for the functions of this version.
    #[error(
        "the Redis at {address} has used all of its maxmemory and cannot load the functions of this version of c3po: \
         raise it for the update, as in `redis-cli CONFIG SET maxmemory 512mb`, and start again"
    )]
    Full {
        /// Where.
        address: String,
    },
    /// It is one of several, and was addressed as if it were alone.
    #[error(
        "the Redis at {address} is one server of a cluster: write redis+cluster://HOST:PORT (rediss+cluster:// with TLS)"
    )]
    InCluster {
        /// Where.
        address: String,
    },
    /// It takes no writes.
    #[error(
        "the Redis at {address} is a replica and takes no messages: name its master, or, where sentinels decide which \
         one that is, write redis+sentinel://HOST:PORT,HOST:PORT/MASTER with the sentinels"
    )]
    Replica {
        /// Where.
        address: String,
    },
    /// It is older than what the functions are written for.
    #[error("the Redis at {address} has version {version}, and c3po needs 7.0 or newer; update it")]
    TooOld {
        /// Where.
        address: String,
        /// Its version.
        version: String,
    },
    /// It may throw away what it accepted.
    #[error(
        "the Redis at {address} has maxmemory-policy {policy}, which lets it throw away accepted messages when memory \
         runs out; set it with `redis-cli CONFIG SET maxmemory-policy noeviction` and in its redis.conf"
    )]
    Evicts {
        /// Where.
        address: String,
        /// What its policy is.
        policy: String,
    },
    /// An earlier build has written there.
    #[error(
        "the Redis at {address} holds what an earlier build of c3po stored, which this one does not read: start once \
         with --discard-old (C3PO_DISCARD_OLD=true), which keeps the keys of hosts and the invites and deletes the old \
         messages and agents; or name another database, such as redis://HOST:PORT/1"
    )]
    EarlierBuild {
        /// Where.
        address: String,
    },
    /// A newer c3po has written there.
    #[error("the Redis at {address} holds data of layout {found}, and this c3po reads up to {SCHEMA}; update c3po")]
    NewerSchema {
        /// Where.
        address: String,
        /// Which layout was found.
        found: String,
    },
}
