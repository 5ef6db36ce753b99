//! The state of the session, as its hooks report it: never read from its screen.

use std::time::Duration;

use c3po_shared::vocabulary::State;
use tokio::time::Instant;

use crate::local::protocol::{Event, Name};

/// After how much silence a turn may have been interrupted: clients report nothing when a person presses Esc.
const SILENCE: Duration = Duration::from_secs(15);

/// After how much silence a turn counts as interrupted although the client reports that it works: that may be a background
/// agent. A session that does work takes a push between two steps.
pub(super) const BUSY_SILENCE: Duration = Duration::from_secs(30);

/// After how much silence a session without any hook report may be idle: one that just begins reports at once.
const UNHEARD: Duration = Duration::from_secs(1);
/// How long a compaction may take. Until it is over nothing is pushed: the context that follows would not hold it.
const COMPACTION_MAX: Duration = Duration::from_secs(600);

/// How often a turn may be kept from ending. Claude Code ends a turn at the eighth time, whichever hook it was.
const STOPS_MAX: u32 = 7;

/// Whether the model works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// No hook has reported yet.
    Unknown,
    Idle,
    Busy,
}

/// The state of the session's turn.
#[derive(Debug)]
pub(super) struct Turn {
    activity: Activity,
    state: Option<State>,
    /// The state that the session reported itself, if events do not contradict it.
    said: Option<State>,
    heard: Option<Instant>,
    /// When the client's file reported last that it works, if no hook has reported since.
    works: Option<Instant>,
    /// Until when a compaction may go on; `None` where none does.
    compacts_until: Option<Instant>,
    /// How often hooks kept the present turn from ending, ours and others.
    stops: u32,
    /// The client's name for the turn under way, or for the one before.
    id: Option<String>,
    /// Whether a person typed a prompt that waits in the client for the end of a step.
    is_queued: bool,
    /// Whether a prompt that waited began the turn, as far as is known: its person may have taken it back.
    is_assumed: bool,
    /// How long an idle session is left alone.
    pause: Duration,
}

impl Turn {
    pub(super) fn new() -> Self {
        Self {
            activity: Activity::Unknown,
            state: None,
            said: None,
            heard: None,
            works: None,
            compacts_until: None,
            stops: 0,
            id: None,
            is_queued: false,
            is_assumed: false,
            pause: Duration::ZERO,
        }
    }

    /// Returns whether a prompt begins a turn. One that is typed in the middle of a turn waits in the client, where a person
    /// may take it back: its hook has the name of the turn that is under way. Where a prompt waits already, another name may be
    /// that of the turn which it began, unreported, after the one before was broken off.
    pub(super) fn begins_with(&self, event: &Event) -> bool {
        let is_another =
            event.prompt_id.is_some() && self.id.is_some() && event.prompt_id != self.id;
        !self.is_busy() || (is_another && !self.is_queued)
    }

    /// A prompt was refused. A turn that is under way has its name from then on, if both came out of the client's queue.
    pub(super) fn refused(&mut self, event: &Event) {
        if self.is_busy() && event.prompt_id.is_some() {
            self.id.clone_from(&event.prompt_id);
        }
    }

    /// Leaves the idle session alone for so long.
    pub(super) fn pauses_for(&mut self, pause: Duration) {
        self.pause = pause;
    }

    /// Takes note of an event. A stop ends the turn only with [`Self::ends`].
    pub(super) fn on(&mut self, event: &Event, now: Instant) {
        if event.agent_id.is_some() {
            // The actions of a subagent prove nothing about the session.
            return;
        }
        match event.name {
            Name::PreCompact => self.compacts_until = Some(now + COMPACTION_MAX),
            // The client's own notices and the end of its own subagent come in the middle of it.
            Name::Notification | Name::SubagentStop | Name::Wait | Name::Status => {}
            _ => self.compacts_until = None,
        }
        match event.name {
            Name::SessionStart => self.starts(event.source.as_deref()),
            Name::UserPromptSubmit => {
                if self.begins_with(event) {
                    self.is_queued = false;
                } else {
                    self.is_queued |= event.typed;
                }
                self.is(Activity::Busy, State::Busy);
                self.stops = 0;
                self.said = self.said.filter(|said| *said == State::Away);
            }
            Name::PreToolUse if asks_person(event) => {
                self.is(Activity::Busy, State::WaitingHuman);
            }
            Name::PreToolUse => self.is(Activity::Busy, State::Busy),
            Name::PostToolBatch => {
                // Here the client takes the prompts that wait into the turn.
                self.is_queued = false;
                self.is(Activity::Busy, State::Busy);
            }
            Name::PermissionRequest => self.is(Activity::Busy, State::WaitingHuman),
            Name::Notification => self.notified(event.notification_type.as_deref()),
            Name::Stop => {
                self.stops = if event.stop_hook_active {
                    self.stops.saturating_add(1)
                } else {
                    0
                };
            }
            Name::StopFailure => self.is(Activity::Idle, State::Blocked),
            Name::Wait if self.activity == Activity::Unknown => {
                self.is(Activity::Idle, State::Ready)
            }
            Name::SessionEnd
            | Name::SubagentStop
            | Name::PreCompact
            | Name::Wait
            | Name::Status => {}
        }
        // A hook that runs beside the session may be late: a prompt that waited may have begun the next turn.
        let is_beside = matches!(
            event.name,
            Name::SessionStart | Name::Wait | Name::SubagentStop
        );
        if !is_beside && event.prompt_id.is_some() {
            self.id.clone_from(&event.prompt_id);
        }
        self.heard = Some(now);
        self.works = None;
        self.is_assumed = false;
    }

    /// The turn has ended, and nothing keeps it. A prompt that waits begins the next one at once, which no hook reports.
    pub(super) fn ends(&mut self) {
        self.is_assumed = std::mem::take(&mut self.is_queued);
        if self.is_assumed {
            self.is(Activity::Busy, State::Busy);
            self.id = None;
        } else {
            self.is(Activity::Idle, State::Ready);
        }
        self.stops = 0;
    }

    /// The session reported its own state.
    pub(super) fn said(&mut self, state: State) {
        self.said = Some(state)
            .filter(|state| !matches!(state, State::Ready | State::Busy | State::Starting));
        self.state = Some(state);
    }

    /// Returns the state for others; `None` before the first report.
    pub(super) fn state(&self) -> Option<State> {
        self.said.or(self.state)
    }

    /// Returns whether the turn that is about to end may be kept from it once more.
    pub(super) fn can_be_kept(&self) -> bool {
        self.stops < STOPS_MAX
    }

    /// Returns whether a turn is under way, as far as is known: one that was broken off counts until the next one ends.
    pub(super) fn is_busy(&self) -> bool {
        self.activity == Activity::Busy
    }

    /// Returns whether a turn is certainly under way: the client reported that after the latest hook, or a person is asked.
    pub(super) fn goes_on(&self) -> bool {
        self.is_busy() && (self.works.is_some() || self.state == Some(State::WaitingHuman))
    }

    /// Returns whether only a prompt that waited is known to have begun the turn.
    pub(super) fn is_assumed(&self) -> bool {
        self.is_assumed
    }

    /// Returns whether a compaction may be under way.
    pub(super) fn compacts(&self) -> bool {
        self.compacts_until.is_some()
    }

    /// Returns whether no turn is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.activity == Activity::Idle
    }

    /// Returns from when on something may be pushed: into an idle session after that silence, and after a longer one where a
    /// turn may have been interrupted, or nothing was reported yet. Never during a compaction.
    pub(super) fn quiet_at(&mut self, idle: Duration, now: Instant) -> Instant {
        let quiet = match self.activity {
            Activity::Idle => self.heard.map_or(now, |heard| heard + self.pause.max(idle)),
            Activity::Busy => {
                let silence = if self.works.is_some() {
                    BUSY_SILENCE
                } else {
                    SILENCE
                };
                self.heard.map_or(now, |heard| heard + silence)
            }
            Activity::Unknown => *self.heard.get_or_insert(now) + UNHEARD,
        };
        self.compacts_until.map_or(quiet, |until| quiet.max(until))
    }

    /// The client's file reports whether a turn is under way. It covers events without hooks, such as a turn that a person
    /// interrupted.
    pub(super) fn client_says(&mut self, is_busy: bool, now: Instant) {
        self.is_assumed = false;
        if !is_busy {
            // Nothing else reports a compaction that failed or was interrupted.
            self.compacts_until = None;
            self.is_queued = false;
            self.is(Activity::Idle, State::Ready);
        } else if self.activity == Activity::Unknown {
            self.is(Activity::Busy, State::Busy);
        }
        if is_busy && self.activity == Activity::Busy && self.heard.is_some() {
            self.works = Some(now);
        } else {
            self.heard = Some(now);
        }
    }

    /// The client works though its turn was to end: another hook keeps the turn, or a prompt that waited began the next one.
    pub(super) fn is_kept(&mut self, now: Instant) {
        self.is(Activity::Busy, State::Busy);
        self.works = Some(now);
    }

    /// The client, which keeps no transcript, worked before the prompt that is about to be reported: in a turn that no hook
    /// reported, such as one that began with a command of the shell. The first prompt of all begins one.
    pub(super) fn is_unreported(&mut self, now: Instant) {
        if self.id.take().is_some() {
            self.is_kept(now);
        }
    }

    /// Returns when to read the client's file: after hooks were silent for a while.
    pub(super) fn asks_at(&mut self, now: Instant) -> Option<Instant> {
        match self.activity {
            _ if self.compacts_until.is_some() => Some(self.silent_at(now)),
            Activity::Idle => None,
            Activity::Busy => Some(self.silent_at(now)),
            Activity::Unknown => Some(self.quiet_at(Duration::ZERO, now)),
        }
    }

    /// Returns when hooks, and the client's file, have been silent for a while.
    fn silent_at(&self, now: Instant) -> Instant {
        let silence = if self.is_assumed { UNHEARD } else { SILENCE };
        self.works
            .max(self.heard)
            .map_or(now, |last| last + silence)
    }

    /// Returns whether the last turn ended by a failure of the model's service.
    pub(super) fn has_failed(&self) -> bool {
        self.state == Some(State::Blocked) && self.activity == Activity::Idle
    }

    /// Returns whether the session set itself to `away`.
    pub(super) fn is_away(&self) -> bool {
        self.said == Some(State::Away)
    }

    fn starts(&mut self, source: Option<&str>) {
        // A compaction may come in the middle of a turn.
        if source != Some("compact") || self.activity == Activity::Unknown {
            self.is(Activity::Idle, State::Ready);
            self.id = None;
        }
        self.said = self.said.filter(|said| *said == State::Away);
    }

    fn notified(&mut self, kind: Option<&str>) {
        match kind {
            Some("idle_prompt") => self.is(Activity::Idle, State::Ready),
            Some("permission_prompt" | "elicitation_dialog") => {
                self.state = Some(State::WaitingHuman)
            }
            _ => {}
        }
    }

    fn is(&mut self, activity: Activity, state: State) {
        self.activity = activity;
        self.state = Some(state);
    }
}

/// Returns whether the tool that is about to run waits for a person.
fn asks_person(event: &Event) -> bool {
    event.tool_name.as_deref() == Some("AskUserQuestion") || event.own_tool() == Some("ask_user")
}

/// Returns whether the event is an action of a model, which must have read its earlier input.
///
/// A compaction fires the end of a subagent without a name: no model went on there.
pub(super) fn is_step(event: &Event) -> bool {
    match event.name {
        Name::PreToolUse | Name::PermissionRequest | Name::PostToolBatch | Name::Stop => true,
        Name::SubagentStop => event.agent_id.is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: Name) -> Event {
        Event::new(name)
    }

    #[test]
    fn events_set_the_state_of_the_session() {
        let (mut turn, now) = (Turn::new(), Instant::now());
        let mut check = |event: Event, state: State, idle: bool| {
            turn.on(&event, now);
            if event.name == Name::Stop {
                turn.ends();
            }
            assert_eq!(
                (turn.state(), turn.is_idle()),
                (Some(state), idle),
                "{event:?}"
            );
        };
        check(
            Event {
                source: Some("startup".into()),
                ..event(Name::SessionStart)
            },
            State::Ready,
            true,
        );
        check(event(Name::UserPromptSubmit), State::Busy, false);
        check(event(Name::PermissionRequest), State::WaitingHuman, false);
        check(event(Name::PostToolBatch), State::Busy, false);
        let asks = Event {
            tool_name: Some("AskUserQuestion".into()),
            ..event(Name::PreToolUse)
        };
        check(asks, State::WaitingHuman, false);
        check(
            Event {
                source: Some("compact".into()),
                ..event(Name::SessionStart)
            },
            State::WaitingHuman,
            false,
        );
        check(event(Name::PostToolBatch), State::Busy, false);
        check(
            Event {
                agent_id: Some("a1".into()),
                ..event(Name::PermissionRequest)
            },
            State::Busy,
            false,
        );
        check(event(Name::Stop), State::Ready, true);
        check(event(Name::StopFailure), State::Blocked, true);
        check(
            Event {
                notification_type: Some("idle_prompt".into()),
                ..event(Name::Notification)
            },
            State::Ready,
            true,
        );
    }

    #[test]
    fn a_tool_that_asks_people_waits_for_them() {
        let check = |tool: &str, expected: State| {
            let mut turn = Turn::new();
            let uses = Event {
                tool_name: Some(tool.into()),
                ..event(Name::PreToolUse)
            };
            turn.on(&uses, Instant::now());
            assert_eq!(turn.state(), Some(expected), "{tool}");
        };
        check("mcp__plugin_c3po_c3po__get_messages", State::Busy);
        check("mcp__plugin_c3po_c3po__ask_user", State::WaitingHuman);
    }

    #[test]
    fn a_state_that_a_session_set_holds_until_the_next_prompt() {
        let (mut turn, now) = (Turn::new(), Instant::now());
        turn.said(State::Blocked);
        turn.on(&event(Name::PostToolBatch), now);
        assert_eq!(turn.state(), Some(State::Blocked));
        turn.on(&event(Name::UserPromptSubmit), now);
        assert_eq!(turn.state(), Some(State::Busy));
        turn.said(State::Away);
        turn.on(&event(Name::UserPromptSubmit), now);
        assert_eq!((turn.state(), turn.is_away()), (Some(State::Away), true));
        turn.said(State::Ready);
        assert_eq!((turn.state(), turn.is_away()), (Some(State::Ready), false));
    }

    #[test]
    fn a_turn_is_not_kept_for_ever() {
        let (mut turn, now) = (Turn::new(), Instant::now());
        turn.on(&event(Name::Stop), now);
        assert!(turn.can_be_kept());
        for _ in 0..STOPS_MAX {
            assert!(turn.can_be_kept());
            turn.on(
                &Event {
                    stop_hook_active: true,
                    ..event(Name::Stop)
                },
                now,
            );
        }
        assert!(!turn.can_be_kept());
        turn.on(&event(Name::UserPromptSubmit), now);
        assert!(turn.can_be_kept());
    }

    #[test]
    fn a_silent_turn_may_have_been_broken_off() {
        let (mut turn, now) = (Turn::new(), Instant::now());
        assert_eq!(turn.quiet_at(Duration::ZERO, now), now + UNHEARD);
        turn.on(&event(Name::UserPromptSubmit), now);
        assert_eq!(turn.quiet_at(Duration::ZERO, now), now + SILENCE);
        turn.ends();
        assert_eq!(turn.quiet_at(Duration::ZERO, now), now);
    }

    #[test]
    fn nothing_is_quiet_during_a_compaction() {
        let (mut turn, now) = (Turn::new(), Instant::now());
        let compacted = Event {
            source: Some("compact".into()),
            ..event(Name::SessionStart)
        };
        turn.ends();
        turn.on(&event(Name::PreCompact), now);
        turn.on(&event(Name::SubagentStop), now);
        assert_eq!(turn.quiet_at(Duration::ZERO, now), now + COMPACTION_MAX);
        turn.on(&compacted, now);
        assert_eq!(turn.quiet_at(Duration::ZERO, now), now);
    }

    #[test]
    fn a_prompt_that_waited_begins_a_turn_unless_its_person_took_it_back() {
        let (mut turn, now) = (Turn::new(), Instant::now());
        let typed = |prompt_id: &str| Event {
            typed: true,
            prompt_id: Some(prompt_id.into()),
            ..event(Name::UserPromptSubmit)
        };
        for is_busy in [true, false] {
            turn.on(&typed("p1"), now);
            turn.on(&typed("p1"), now);
            turn.ends();
            assert!(turn.is_busy(), "the prompt begins the next turn");
            assert_eq!(turn.asks_at(now), Some(now + UNHEARD));
            turn.client_says(is_busy, now);
            assert_eq!(turn.is_busy(), is_busy);
            turn.client_says(false, now);
        }
    }
}
