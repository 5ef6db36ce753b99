//! Every promise, kept by Redis: a server of its own for each test.

use std::sync::Arc;

use anyhow::Result;
use c3po_coordinator::store::Store;
use c3po_coordinator::store::redis::RedisStore;
use harness::redis::Redis;

use super::Fixture;

every_promise!(start);

async fn start() -> Result<Fixture> {
    let redis = Redis::start().await?;
    let url = redis.url();
    let open = move || -> futures_util::future::BoxFuture<'static, Result<Arc<dyn Store>>> {
        let url = url.clone();
        Box::pin(async move { Ok(Arc::new(RedisStore::open(&url).await?) as Arc<dyn Store>) })
    };
    Fixture::new(redis, Box::new(open)).await
}
