//! DNS lookups for Redis connections.

use std::net::SocketAddr;

use redis::io::AsyncDNSResolver;
use redis::{AsyncConnectionConfig, RedisFuture};
use tokio::task::spawn_blocking;

use crate::names;

/// A resolver that looks up names as the rest of this program does.
struct Lookup;

impl AsyncDNSResolver for Lookup {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        let host = host.to_owned();
        // A lookup cannot be cancelled: its thread ends when the system replies.
        let found = spawn_blocking(move || names::addresses(&host, port));
        Box::pin(async move {
            let addresses = found.await.map_err(std::io::Error::other)??;
            Ok(Box::new(addresses.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

/// Returns the configuration of every connection.
pub(super) fn connecting() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_dns_resolver(Lookup)
}
