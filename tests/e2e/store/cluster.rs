//! The Redis store on a cluster of three masters: the same promises, and what it does when one of them is lost.

use anyhow::Result;
use harness::cluster::Cluster;

use super::Fixture;
use super::redis::fixture_on;

async fn start() -> Result<Fixture> {
    let cluster = Cluster::borrow().await?;
    fixture_on(cluster.url(), cluster).await
}

every_promise!(start);
