//! The addresses of a Redis by its name.

use std::net::SocketAddr;

use redis::io::AsyncDNSResolver;
use redis::{AsyncConnectionConfig, RedisFuture};
use tokio::task::spawn_blocking;

use crate::names;

/// Looks up names as the rest of this program does.
struct Lookup;

impl AsyncDNSResolver for Lookup {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        let host = host.to_owned();
        // A look-up cannot be cancelled: its thread ends with the answer of the system.
        let found = spawn_blocking(move || names::addresses(&host, port));
        Box::pin(async move {
            let addresses = found.await.map_err(std::io::Error::other)??;
            Ok(Box::new(addresses.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

/// Returns how every connection is made.
pub(super) fn connecting() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_dns_resolver(Lookup)
}
