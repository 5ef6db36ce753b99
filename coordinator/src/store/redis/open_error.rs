//! Reasons why a Redis cannot be the store, with instructions.

use super::key_names::SCHEMA;

/// Why a Redis cannot be the store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configured certificates cannot be used.
    #[error(
        "cannot use the certificate files {files} (--redis-ca, --redis-cert, --redis-key): {reason}"
    )]
    Certificates {
        /// The files.
        files: String,
        /// The cause.
        reason: String,
    },
    /// Its certificate is not trusted.
    #[error(
        "the Redis at {address} cannot be trusted: {reason}; name its certificate authority with --redis-ca FILE or \
         C3PO_REDIS_CA, and check that its certificate has the host name in its address"
    )]
    Untrusted {
        /// The address.
        address: String,
        /// The problem with its certificate.
        reason: String,
    },
    /// It requires a client certificate.
    #[error(
        "the Redis at {address} requires a client certificate: pass one with --redis-cert FILE and --redis-key FILE, \
         or set tls-auth-clients no in Redis ({reason})"
    )]
    AsksForCertificate {
        /// The address.
        address: String,
        /// The error of the server.
        reason: String,
    },
    /// No Redis responds at the address.
    #[error("no Redis answers at {address}: {reason}")]
    Unreachable {
        /// The address.
        address: String,
        /// The error.
        reason: String,
    },
    /// It responds, but denies access or a required command.
    #[error(
        "the Redis at {address} refuses this coordinator: {reason}; check the user, password and database in its URL, \
         that it is a cluster if the URL has redis+cluster, and that its ACL has the permissions in docs/REDIS.md"
    )]
    Refused {
        /// The address.
        address: String,
        /// The error of the server.
        reason: String,
    },
    /// It has no memory for the functions of this version.
    #[error(
        "the Redis at {address} has used all of its maxmemory and cannot load the functions of this version of c3po: \
         raise it for the update, as in `redis-cli CONFIG SET maxmemory 512mb`, and start again"
    )]
    Full {
        /// The address.
        address: String,
    },
    /// It is part of a cluster, but the address is that of a single server.
    #[error(
        "the Redis at {address} is one server of a cluster: write redis+cluster://HOST:PORT (rediss+cluster:// with TLS)"
    )]
    InCluster {
        /// The address.
        address: String,
    },
    /// It is a read-only replica.
    #[error(
        "the Redis at {address} is a replica and accepts no writes: use its master, or, if sentinels choose the \
         master, write redis+sentinel://HOST:PORT,HOST:PORT/MASTER with the sentinels"
    )]
    Replica {
        /// The address.
        address: String,
    },
    /// It is older than the version that the functions need.
    #[error("the Redis at {address} has version {version}, and c3po needs 7.0 or newer; update it")]
    TooOld {
        /// The address.
        address: String,
        /// Its version.
        version: String,
    },
    /// It may evict accepted messages.
    #[error(
        "the Redis at {address} has maxmemory-policy {policy}, which deletes accepted messages when memory runs out; \
         change it with `redis-cli CONFIG SET maxmemory-policy noeviction` and in its redis.conf"
    )]
    Evicts {
        /// The address.
        address: String,
        /// Its policy.
        policy: String,
    },
    /// It has data of an earlier build.
    #[error(
        "the Redis at {address} has data of an earlier build of c3po, which this one cannot read: start once with \
         --discard-old (C3PO_DISCARD_OLD=true), which keeps the keys of hosts and the invites and deletes the old \
         messages and agents; or use another database, such as redis://HOST:PORT/1"
    )]
    EarlierBuild {
        /// The address.
        address: String,
    },
    /// It has data of a newer c3po.
    #[error(
        "the Redis at {address} has data in format {found}, and this c3po reads formats up to {SCHEMA}; update c3po"
    )]
    NewerSchema {
        /// The address.
        address: String,
        /// The layout that was found.
        found: String,
    },
}
