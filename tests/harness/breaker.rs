//! A TCP proxy that simulates a failing link: on request it loses, holds, cuts or delays bytes. It never reorders them, and
//! changes nothing except the target's timestamps.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use c3po_shared::time::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A direction of the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the target.
    There,
    /// From the target to the client.
    Back,
}

/// How bytes of one direction are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Passes,
    /// They are held back until the link is healed, as on a lost route.
    Held,
}

/// The simulated conditions for all connections.
#[derive(Debug, Clone, Copy)]
struct Weather {
    there: Fate,
    back: Fate,
    delay: Duration,
    /// The bandwidth limit in bytes per second, if any.
    rate: Option<u64>,
    /// For each direction: connections with a smaller number silently drop everything.
    forgotten: [u64; 2],
    /// Connections with a smaller number are closed.
    dropped: u64,
    /// The apparent lead of the target's clock, in milliseconds.
    ahead_ms: i64,
}

/// A listener in front of a target. Dropping it stops it.
#[derive(Debug)]
pub struct Breaker {
    address: SocketAddr,
    shared: Arc<Shared>,
    _stop: tokio_util::sync::DropGuard,
}

#[derive(Debug)]
struct Shared {
    target: SocketAddr,
    weather: watch::Sender<Weather>,
    next: AtomicU64,
    open: AtomicUsize,
    /// The bytes that still pass in each direction before the connection is cut; `u64::MAX` for no cut.
    cuts: [AtomicU64; 2],
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Breaker {
    /// Listens on a free port and forwards everything to `target`, which may start later.
    ///
    /// Errors: there is no free port.
    pub async fn before(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("listening")?;
        let address = listener.local_addr().context("asking for the port")?;
        let weather = Weather {
            there: Fate::Passes,
            back: Fate::Passes,
            delay: Duration::ZERO,
            rate: None,
            forgotten: [0; 2],
            dropped: 0,
            ahead_ms: 0,
        };
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            target,
            weather: watch::Sender::new(weather),
            next: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            cuts: [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)],
            tasks: TaskTracker::new(),
            stop: stop.clone(),
        });
        shared.tasks.spawn(Arc::clone(&shared).listen(listener));
        Ok(Self {
            address,
            shared,
            _stop: stop.drop_guard(),
        })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections accepted so far.
    pub fn taken(&self) -> u64 {
        self.shared.next.load(Ordering::Relaxed)
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Closes every current connection.
    pub fn drop_all(&self) {
        let next = self.taken();
        self.shared
            .weather
            .send_modify(|weather| weather.dropped = next);
    }

    /// Drops everything in that direction on the current connections, silently and for good: they are half open. New
    /// connections work.
    pub fn forget(&self, way: Way) {
        let next = self.taken();
        self.shared
            .weather
            .send_modify(|weather| weather.forgotten[index(way)] = next);
    }

    /// Holds everything back in both directions, on current and new connections, until [`heal`](Self::heal). Then it is
    /// delivered.
    pub fn hold(&self) {
        self.shared
            .weather
            .send_modify(|weather| (weather.there, weather.back) = (Fate::Held, Fate::Held));
    }

    /// Lifts every hold, delay and bandwidth limit.
    pub fn heal(&self) {
        self.shared.weather.send_modify(|weather| {
            (weather.there, weather.back) = (Fate::Passes, Fate::Passes);
            (weather.delay, weather.rate) = (Duration::ZERO, None);
        });
    }

    /// Heals the link, and cancels a cut that has not happened yet.
    pub fn mend(&self) {
        self.heal();
        self.shared
            .cuts
            .iter()
            .for_each(|cut| cut.store(u64::MAX, Ordering::Relaxed));
    }

    /// Delays everything by this time.
    pub fn delay(&self, delay: Duration) {
        self.shared
            .weather
            .send_modify(|weather| weather.delay = delay);
    }

    /// Limits each direction of each connection to that many bytes per second.
    pub fn throttle(&self, bytes_a_second: u64) {
        self.shared
            .weather
            .send_modify(|weather| weather.rate = Some(bytes_a_second.max(1)));
    }

    /// Shifts the target's timestamps ahead by that many milliseconds, or back if negative.
    pub fn shift_clock(&self, ahead_ms: i64) {
        self.shared
            .weather
            .send_modify(|weather| weather.ahead_ms = ahead_ms);
    }

    /// Closes the connection on which that many more bytes have passed in that direction, in the middle of a frame. Once.
    pub fn cut_after(&self, way: Way, bytes: u64) {
        self.shared.cuts[index(way)].store(bytes, Ordering::Relaxed);
    }
}

fn index(way: Way) -> usize {
    match way {
        Way::There => 0,
        Way::Back => 1,
    }
}

impl Shared {
    async fn listen(self: Arc<Self>, listener: TcpListener) {
        while let Some(Ok((stream, _))) = self.stop.run_until_cancelled(listener.accept()).await {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            self.tasks.spawn(Arc::clone(&self).pass_on(stream, number));
        }
    }

    async fn pass_on(self: Arc<Self>, near: TcpStream, number: u64) {
        self.open.fetch_add(1, Ordering::Relaxed);
        // If the target is unreachable, the connection just ends.
        if let Some(Ok(far)) = self
            .stop
            .run_until_cancelled(TcpStream::connect(self.target))
            .await
        {
            // Small frames are sent immediately, as on the real link.
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::select! {
                () = self.pump(near_in, far_out, Way::There, number) => {}
                () = self.pump(far_in, near_out, Way::Back, number) => {}
                () = self.is_dropped(number) => {}
                () = self.stop.cancelled() => {}
            }
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    async fn is_dropped(&self, number: u64) {
        let mut weather = self.weather.subscribe();
        // The sender lives as long as `self`.
        let _ = weather.wait_for(|weather| number < weather.dropped).await;
    }

    /// Forwards one direction until it ends or is cut.
    async fn pump(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Way, number: u64) {
        let mut weather = self.weather.subscribe();
        let mut bytes = vec![0; 16 << 10];
        loop {
            let passes = |weather: &Weather| fate(weather, way) == Fate::Passes;
            if weather.wait_for(passes).await.is_err() {
                return;
            }
            let read = from.read(&mut bytes).await.unwrap_or_default();
            // A hold may have begun while this read was waiting.
            let Ok(now) = weather.wait_for(passes).await.map(|weather| *weather) else {
                return;
            };
            if number < now.forgotten[index(way)] {
                if read == 0 {
                    // The close is dropped too.
                    std::future::pending::<()>().await;
                }
                continue;
            }
            if read == 0 {
                return;
            }
            if way == Way::Back && now.ahead_ms != 0 {
                shift_times(&mut bytes[..read], now.ahead_ms);
            }
            tokio::time::sleep(now.delay).await;
            let left = self.take_from_cut(way, read);
            if to.write_all(&bytes[..left.unwrap_or(read)]).await.is_err() || left.is_some() {
                return;
            }
            if let Some(rate) = now.rate {
                let read = u64::try_from(read).unwrap_or_default();
                tokio::time::sleep(Duration::from_millis(read * 1_000 / rate)).await;
            }
        }
    }

    /// Counts bytes towards a cut. If the cut falls among these bytes, returns how many of them still pass.
    fn take_from_cut(&self, way: Way, read: usize) -> Option<usize> {
        let cut = &self.cuts[index(way)];
        let left = cut.load(Ordering::Relaxed);
        let wanted = u64::try_from(read).unwrap_or_default();
        if left == u64::MAX {
            return None;
        }
        if left >= wanted {
            cut.store(left - wanted, Ordering::Relaxed);
            return None;
        }
        cut.store(u64::MAX, Ordering::Relaxed);
        usize::try_from(left).ok()
    }
}

/// Replaces each `timestamp` by another one of the same length. One that is split between two reads is left unchanged.
fn shift_times(bytes: &mut [u8], ahead_ms: i64) {
    const MARK: &[u8] = b"\"timestamp\":\"";
    const LENGTH: usize = "2026-01-15T10:30:00.000Z".len();
    let mut at = 0;
    while let Some(next) = bytes[at..]
        .windows(MARK.len())
        .position(|window| window == MARK)
    {
        at += next + MARK.len();
        let Some(text) = bytes.get_mut(at..at + LENGTH) else {
            return;
        };
        if let Some(time) = std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse::<Timestamp>().ok())
        {
            let shifted = Timestamp::from_millis(time.millis().saturating_add_signed(ahead_ms));
            text.copy_from_slice(shifted.to_string().as_bytes());
        }
    }
}

fn fate(weather: &Weather, way: Way) -> Fate {
    match way {
        Way::There => weather.there,
        Way::Back => weather.back,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(10);
    /// How long a test waits to see that no bytes arrive.
    const NEVER: Duration = Duration::from_millis(100);

    /// A breaker in front of a listener, a connection through it, and both its ends.
    async fn connected() -> Result<(Breaker, TcpListener, TcpStream, TcpStream)> {
        let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let breaker = Breaker::before(target.local_addr()?).await?;
        let near = TcpStream::connect(breaker.address()).await?;
        let (far, _) = timeout(SOON, target.accept()).await??;
        Ok((breaker, target, near, far))
    }

    async fn hear(stream: &mut TcpStream, count: usize) -> Result<String> {
        let mut bytes = vec![0; count];
        timeout(SOON, stream.read_exact(&mut bytes)).await??;
        Ok(String::from_utf8(bytes)?)
    }

    async fn hears_nothing(stream: &mut TcpStream) -> bool {
        timeout(NEVER, stream.read(&mut [0; 1])).await.is_err()
    }

    #[tokio::test]
    async fn bytes_pass_and_held_ones_arrive_later() -> Result<()> {
        let (breaker, _target, mut near, mut far) = connected().await?;
        near.write_all(b"one").await?;
        assert_eq!(hear(&mut far, 3).await?, "one");
        breaker.hold();
        near.write_all(b"two").await?;
        far.write_all(b"back").await?;
        assert!(hears_nothing(&mut far).await && hears_nothing(&mut near).await);
        breaker.heal();
        assert_eq!(
            (hear(&mut far, 3).await?, hear(&mut near, 4).await?),
            ("two".to_owned(), "back".to_owned())
        );
        assert_eq!((breaker.taken(), breaker.open()), (1, 1));
        Ok(())
    }

    #[tokio::test]
    async fn a_black_holed_direction_also_swallows_the_close() -> Result<()> {
        let (breaker, target, mut near, mut far) = connected().await?;
        breaker.forget(Way::There);
        near.write_all(b"lost").await?;
        far.write_all(b"back").await?;
        assert_eq!(hear(&mut near, 4).await?, "back");
        drop(near);
        assert!(
            hears_nothing(&mut far).await,
            "neither the text nor the end"
        );
        breaker.heal();
        let mut near = TcpStream::connect(breaker.address()).await?;
        let (mut newer, _) = timeout(SOON, target.accept()).await??;
        near.write_all(b"there").await?;
        assert_eq!(hear(&mut newer, 5).await?, "there");
        assert!(hears_nothing(&mut far).await);
        Ok(())
    }

    #[tokio::test]
    async fn only_the_time_that_the_target_sends_is_shifted() -> Result<()> {
        let (breaker, _target, mut near, mut far) = connected().await?;
        let said = r#"{"timestamp":"2026-01-15T10:30:00.000Z","at":"2026-01-15T10:30:00.000Z"}"#;
        breaker.shift_clock(-3_600_000);
        far.write_all(said.as_bytes()).await?;
        near.write_all(said.as_bytes()).await?;
        let shifted = said.replacen("T10:", "T09:", 1);
        assert_eq!(
            (
                hear(&mut near, said.len()).await?,
                hear(&mut far, said.len()).await?
            ),
            (shifted, said.to_owned())
        );
        Ok(())
    }

    #[tokio::test]
    async fn a_cut_comes_after_so_many_bytes_once() -> Result<()> {
        let (breaker, _target, mut near, mut far) = connected().await?;
        breaker.cut_after(Way::There, 5);
        near.write_all(b"abc").await?;
        assert_eq!(hear(&mut far, 3).await?, "abc");
        near.write_all(b"defg").await?;
        let mut rest = String::new();
        timeout(SOON, far.read_to_string(&mut rest)).await??;
        assert_eq!(rest, "de");
        assert_eq!(
            timeout(SOON, near.read(&mut [0; 1]))
                .await?
                .unwrap_or_default(),
            0
        );
        Ok(())
    }

    #[tokio::test]
    async fn connections_are_dropped_delayed_and_throttled() -> Result<()> {
        let (breaker, target, mut near, mut far) = connected().await?;
        let began = tokio::time::Instant::now();
        breaker.delay(Duration::from_millis(50));
        near.write_all(b"late").await?;
        assert_eq!(hear(&mut far, 4).await?, "late");
        assert!(began.elapsed() >= Duration::from_millis(50));
        breaker.heal();
        breaker.throttle(100);
        near.write_all(&[b'x'; 10]).await?;
        hear(&mut far, 10).await?;
        near.write_all(b"y").await?;
        hear(&mut far, 1).await?;
        assert!(
            began.elapsed() >= Duration::from_millis(150),
            "{:?}",
            began.elapsed()
        );
        breaker.drop_all();
        assert_eq!(
            timeout(SOON, far.read(&mut [0; 1]))
                .await?
                .unwrap_or_default(),
            0
        );
        let _whole = TcpStream::connect(breaker.address()).await?;
        timeout(SOON, target.accept()).await??;
        Ok(())
    }
}
