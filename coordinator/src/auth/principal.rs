//! The authenticated principal of a request or a link, and its rights.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use c3po_shared::audit::Entry;
use c3po_shared::host;
use c3po_shared::ids::AgentId;
use c3po_shared::limits::{AT_ONCE_PER_KEY, WAITS_PER_KEY, WAITS_WITHOUT_KEY};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{LoginScope, Scope};
use tokio_util::sync::CancellationToken;

use super::globs::AgentGlobs;
use super::looks::Looks;
use super::turns::{TURNS_WITHOUT_KEY, Turns};
use super::work::Places;
use crate::unfinished::Room;

/// The name of a person without a login, on an open coordinator that only this machine reaches.
const NOT_VERIFIED: &str = "local (not verified)";

const ANYBODY: &str = "anybody";
const TOKEN: &str = "token";
/// The names in records of the principals that share one name.
pub(crate) const NAMES_WITHOUT_KEY: [&str; 2] = [ANYBODY, TOKEN];

/// Returns the refusal of a principal that has reached a limit; `subject` is the principal with its verb.
pub(super) fn crowded(subject: &str, limit: usize, of: &str, count: usize) -> Refusal {
    Refusal::new(
        ErrorCode::RateLimited,
        format!("{subject} reached the limit of {limit} concurrent {of}"),
    )
    .suggest("End some of them, or give each host its own key.")
    .detail("limit", limit)
    .detail("count", count)
}

/// An authenticated principal.
#[derive(Debug)]
pub(crate) struct Principal {
    pub(super) who: Who,
    /// Cancelled when the credential ends.
    ended: CancellationToken,
    /// The number of its present links and requests.
    stays: AtomicUsize,
    /// When it was last presented, in milliseconds; 0 before the first time.
    used: AtomicU64,
    /// The number of its present waits.
    waits: AtomicUsize,
    /// Its places for requests and calls.
    pub(super) places: Places,
    /// The turns of its links.
    turns: Turns,
    /// Its budget for unfinished input.
    room: Room,
    /// The looks at credentials of its kind; `None` if it has none that a store keeps.
    looks: Option<Arc<Looks>>,
}

/// One wait of a principal, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct PresentWait(Arc<Principal>);

impl Drop for PresentWait {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One link or request of a principal, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Stay(Arc<Principal>);

impl Stay {
    /// Returns its principal.
    pub(crate) fn principal(&self) -> &Arc<Principal> {
        &self.0
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.0.stays.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where the clients of an open coordinator are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// On its machine: they act as `human`.
    Machine {
        /// Whether they also answer for people, as `local`.
        answers: bool,
    },
    /// Anywhere.
    Network,
}

#[derive(Debug)]
pub(super) enum Who {
    /// A client without a credential, on an open coordinator.
    Anybody(Reach),
    /// A client with the shared token.
    Token,
    /// A local client under the coordinator's own user.
    Local,
    /// A client with a key.
    Key {
        id: String,
        revision: u64,
        scope: Scope,
        agents: AgentGlobs,
        host: String,
    },
    /// A person with a login.
    Login {
        id: String,
        /// Its name in records.
        label: String,
        /// The name of the person.
        name: String,
        scope: LoginScope,
    },
}

impl Principal {
    /// Returns the principal of clients without a credential.
    pub(crate) fn anybody(reach: Reach) -> Self {
        Self::of(Who::Anybody(reach))
    }

    /// Returns the principal of clients with the shared token.
    pub(crate) fn token() -> Self {
        Self::of(Who::Token)
    }

    /// Returns the principal of local clients under the coordinator's own user.
    pub(crate) fn local() -> Self {
        Self::of(Who::Local)
    }

    /// Returns the principal of a key at that revision.
    pub(super) fn key(
        id: String,
        revision: u64,
        scope: Scope,
        agents: AgentGlobs,
        host: String,
    ) -> Self {
        Self::of(Who::Key {
            id,
            revision,
            scope,
            agents,
            host,
        })
    }

    /// Returns the name of a login in records, which no key can have.
    pub(crate) fn label_of_login(id: &str) -> String {
        format!("login-{id}")
    }

    /// Returns the principal of a login.
    pub(super) fn login(id: &str, name: &str, scope: LoginScope) -> Self {
        Self::of(Who::Login {
            id: id.to_owned(),
            label: Self::label_of_login(id),
            name: name.to_owned(),
            scope,
        })
    }

    fn of(who: Who) -> Self {
        let places = Places::new(who.is_one_host());
        let turns = if who.is_one_host() {
            Turns::of_one_host()
        } else {
            Turns::new(TURNS_WITHOUT_KEY)
        };
        Self {
            who,
            ended: CancellationToken::new(),
            stays: AtomicUsize::new(0),
            used: AtomicU64::new(0),
            waits: AtomicUsize::new(0),
            places,
            turns,
            room: Room::default(),
            looks: None,
        }
    }

    /// Counts one more link or request. Only keys and logins have a limit.
    ///
    /// Errors: `RATE_LIMITED` if it is at its limit.
    pub(crate) fn enter(principal: &Arc<Self>) -> Result<Stay, Refusal> {
        let before = principal.stays.fetch_add(1, Ordering::Relaxed);
        let stay = Stay(Arc::clone(principal));
        match principal.credential() {
            Some(credential) if before >= AT_ONCE_PER_KEY => Err(crowded(
                &format!("{credential} has"),
                AT_ONCE_PER_KEY,
                "links and requests",
                before,
            )),
            _ => Ok(stay),
        }
    }

    /// Counts one more wait. All clients without a key or login of their own share one limit.
    ///
    /// Errors: `RATE_LIMITED` if the principal is at its limit.
    pub(crate) fn begin_wait(principal: &Arc<Self>) -> Result<PresentWait, Refusal> {
        let before = principal.waits.fetch_add(1, Ordering::Relaxed);
        let wait = PresentWait(Arc::clone(principal));
        match principal.credential() {
            Some(credential) if before >= WAITS_PER_KEY => Err(crowded(
                &format!("{credential} has"),
                WAITS_PER_KEY,
                "waits",
                before,
            )),
            None if before >= WAITS_WITHOUT_KEY => Err(crowded(
                "the clients without a key have",
                WAITS_WITHOUT_KEY,
                "waits",
                before,
            )),
            _ => Ok(wait),
        }
    }

    /// Returns the turns of its links.
    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Returns its budget for unfinished input.
    pub(crate) fn room(&self) -> &Room {
        &self.room
    }

    /// Records that it was presented.
    pub(super) fn is_used(&self, now: Timestamp) {
        self.used.store(now.millis(), Ordering::Relaxed);
    }

    /// Returns when it was last used, which is now if it has links or requests.
    pub(super) fn last_use(&self, now: Timestamp) -> Option<Timestamp> {
        match (
            self.stays.load(Ordering::Relaxed),
            self.used.load(Ordering::Relaxed),
        ) {
            (0, 0) => None,
            (0, at) => Some(Timestamp::from_millis(at)),
            _ => Some(now),
        }
    }

    /// Closes all its links and requests.
    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    /// Waits until the credential has ended.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Returns the result of the work, unless the credential ends first.
    pub(crate) async fn unless_ended<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, Refusal> {
        // The end of the credential takes precedence over work that completes at the same time.
        tokio::select! {
            biased;
            () = self.ended.cancelled() => Err(self.ending()),
            done = work => Ok(done),
        }
    }

    /// Returns the refusal of a call whose credential ends while it runs.
    pub(crate) fn ending(&self) -> Refusal {
        match &self.who {
            Who::Login { .. } => super::login_ended(),
            _ => super::ended(),
        }
    }

    /// Returns the principal of a cached credential, which these looks keep up to date.
    pub(super) fn known_by(mut self, looks: &Arc<Looks>) -> Self {
        self.looks = Some(Arc::clone(looks));
        self
    }

    /// Waits until the store was read recently, so that its end would have been noticed.
    ///
    /// Errors: `STORE_UNAVAILABLE` if the store cannot be read.
    pub(super) async fn is_recent(&self) -> Result<(), Refusal> {
        match &self.looks {
            Some(looks) => looks.are_recent().await,
            None => Ok(()),
        }
    }

    /// Waits until its credential is known to be valid now.
    ///
    /// Errors: `UNAUTHORIZED` if it has ended, and those of [`Self::is_recent`].
    pub(crate) async fn is_known(&self) -> Result<(), Refusal> {
        self.is_recent().await?;
        if self.has_ended() {
            return Err(self.ending());
        }
        Ok(())
    }

    /// Returns whether the credential has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Returns the id and the revision of its key, if any.
    pub(crate) fn presented(&self) -> Option<(&str, u64)> {
        match &self.who {
            Who::Key { id, revision, .. } => Some((id, *revision)),
            Who::Anybody(_) | Who::Token | Who::Local | Who::Login { .. } => None,
        }
    }

    /// Returns the id of its key, `login-ID` for its login, or a fixed word without either.
    pub(crate) fn name(&self) -> &str {
        match &self.who {
            Who::Anybody(_) => ANYBODY,
            Who::Token => TOKEN,
            Who::Local => "local",
            Who::Key { id, .. } => id,
            Who::Login { label, .. } => label,
        }
    }

    /// Returns the kind of its credential.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.who {
            Who::Anybody(_) => "anybody",
            Who::Token => "token",
            Who::Local => "local",
            Who::Key { .. } => "key",
            Who::Login { .. } => "login",
        }
    }

    /// Returns the name under which its answers for people are recorded, if it may answer.
    pub(crate) fn answers_as(&self) -> Option<&str> {
        match &self.who {
            Who::Login { name, .. } => Some(name),
            Who::Anybody(Reach::Machine { answers: true }) => Some(NOT_VERIFIED),
            _ => None,
        }
    }

    /// Returns its key or login in a sentence, if it has one.
    pub(super) fn credential(&self) -> Option<String> {
        match &self.who {
            Who::Key { id, .. } => Some(format!("the key {id}")),
            Who::Login { id, .. } => Some(format!("the login {id}")),
            Who::Anybody(_) | Who::Token | Who::Local => None,
        }
    }

    /// Returns the id of its login, if any.
    pub(crate) fn login_id(&self) -> Option<&str> {
        match &self.who {
            Who::Login { id, .. } => Some(id),
            _ => None,
        }
    }

    /// Returns the login to record with a message of that agent: its id, or `local` for a person without one.
    pub(crate) fn login_of(&self, agent: &AgentId) -> Option<&str> {
        match &self.who {
            Who::Anybody(_) if *agent == AgentId::human() => Some("local"),
            _ => self.login_id(),
        }
    }

    /// Returns the id of its key, if any.
    pub(crate) fn key_id(&self) -> Option<&str> {
        match &self.who {
            Who::Key { id, .. } => Some(id),
            Who::Anybody(_) | Who::Token | Who::Local | Who::Login { .. } => None,
        }
    }

    /// Returns the host that its key authenticates, if any.
    pub(crate) fn own_host(&self) -> Option<&str> {
        match &self.who {
            Who::Key { host, .. } => Some(host),
            Who::Anybody(_) | Who::Token | Who::Local | Who::Login { .. } => None,
        }
    }

    /// Returns its host: that of its key, or else the unverified one that the client sent. All logins count as one host, whatever
    /// they send: with the name of another one they would use up its share of people's inbox.
    pub(crate) fn host(&self, said: &str) -> String {
        if self.login_id().is_some() {
            return AgentId::human().to_string();
        }
        let said = Some(said).filter(|said| !said.trim().is_empty());
        self.own_host().or(said).unwrap_or(host::UNKNOWN).to_owned()
    }

    /// Returns the audit entry with the id of its key or login.
    pub(crate) fn sign(&self, entry: Entry) -> Entry {
        Entry {
            key: self.key_id().map(str::to_owned),
            login: self.login_id().map(str::to_owned),
            ..entry
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A key of the host `nas`.
    pub(crate) fn key(scope: Scope, glob: &str) -> Principal {
        Principal::key(
            "0a1b2c3d".into(),
            1,
            scope,
            AgentGlobs::new(vec![glob.into()]).expect("a glob"),
            "nas".into(),
        )
    }

    #[tokio::test]
    async fn work_that_is_done_at_the_end_of_the_credential_came_too_late() {
        let principal = key(Scope::Admin, "*");
        assert_eq!(principal.unless_ended(async { 7 }).await, Ok(7));
        let (done, work) = tokio::sync::oneshot::channel::<()>();
        let mut outcome = std::pin::pin!(principal.unless_ended(work));
        assert!(futures_util::poll!(&mut outcome).is_pending());
        done.send(()).expect("it is waited for");
        principal.end();
        assert_eq!(
            outcome.await.map_err(|refusal| refusal.code),
            Err(ErrorCode::Unauthorized)
        );
    }

    #[test]
    fn the_host_is_that_of_the_key_and_a_reported_one_counts_only_without_key() {
        assert_eq!(key(Scope::Agent, "*").host("laptop"), "nas");
        assert_eq!(Principal::token().host("laptop"), "laptop");
        assert_eq!(Principal::anybody(Reach::Network).host(" "), "unknown");
        let login = Principal::login("0a1b2c3d", "ann", LoginScope::Person);
        assert_eq!(login.host("nas"), "human");
    }

    #[test]
    fn a_key_has_so_many_links_and_requests_at_once() {
        let principal = Arc::new(key(Scope::Agent, "*"));
        let mut stays: Vec<_> = (0..AT_ONCE_PER_KEY)
            .map(|_| Principal::enter(&principal).expect("room"))
            .collect();
        assert_eq!(
            Principal::enter(&principal)
                .map_err(|refusal| refusal.code)
                .err(),
            Some(ErrorCode::RateLimited)
        );
        stays.pop();
        assert!(Principal::enter(&principal).is_ok());
        let anybody = Arc::new(Principal::anybody(Reach::Network));
        let stays: Vec<_> = (0..=AT_ONCE_PER_KEY)
            .map(|_| Principal::enter(&anybody))
            .collect();
        assert!(stays.iter().all(Result::is_ok));
    }
}
