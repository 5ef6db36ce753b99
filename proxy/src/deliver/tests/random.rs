//! Events in any order, by a seed: invariants for every behaviour of client, person and network.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use c3po_shared::ids::MessageId;
use c3po_shared::receipt::{Stage, Via};
use serde_json::json;
use tokio::time::Instant;

use super::{Scene, event, message, news, of_turn, socket, starts};
use crate::deliver::client::ClientState;
use crate::deliver::hop::Input;
use crate::deliver::push::Todo;
use crate::deliver::render::is_marked;
use crate::deliver::testing::{agent, id, standing};
use crate::deliver::transcript::Recorded;
use crate::local::protocol::{Answer, Event, Name};

/// How many sessions are played, and how many events each has.
const SESSIONS: u64 = 400;
const EVENTS: usize = 120;
/// How many messages come in one session, and how many more before its rewind.
const MESSAGES: u32 = 6;
const REWOUND: u32 = 2;

/// Numbers that follow from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        // Knuth's constants of a linear congruential generator.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Returns whether a hook or a push brings the message in that text.
fn is_copy(text: &str, id: &MessageId) -> bool {
    let mut lines = text.lines().filter(|line| line.starts_with("[FROM: "));
    lines.any(|line| line.contains(&format!("[ID: {id}]")))
}

/// A session, and the part of it that is visible from outside.
struct Play {
    seed: u64,
    scene: Scene,
    client: ClientState,
    dice: Dice,
    turn: u64,
    context: u64,
    /// Texts that were pushed, and of those the ones that may still come.
    pushed: Vec<String>,
    /// Texts that hooks were given, by offer.
    offered: HashMap<u64, String>,
    /// The texts that reached the client.
    reached: Vec<String>,
    /// When the client wrote each of them.
    written: Vec<Instant>,
    /// A use of a tool, one of several in the step under way.
    tool_use: Option<String>,
    /// The messages of results that no request to the model has held: their steps have not ended, or have ended the turn.
    unasked: Vec<MessageId>,
    /// How many of the texts were in a request that the model answered.
    answered: usize,
    /// Whether the latest event was the end of a step.
    has_results: bool,
    /// The numbers of the messages that came.
    arrived: HashSet<u32>,
    /// Which messages are settled.
    settled: Vec<MessageId>,
    /// Whether the client drops some texts of hooks that are not of a prompt.
    drops: bool,
    /// The text of the hook at the end of the latest step, by its place among those that reached the client.
    of_step: Option<usize>,
    /// Whether a tool ends the turn: the client drops the texts of the hooks that run there.
    is_ended: bool,
    /// Whether the transcript can be read each time.
    reads_always: bool,
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut scene = Scene::begun(Some(socket()));
        if seed.is_multiple_of(2) {
            scene.wait();
        }
        // A client with a transcript, one that keeps a session file alone, one that keeps nothing.
        let client = match seed % 3 {
            1 => ClientState {
                is_busy: Some(true),
                transcript: None,
            },
            _ => ClientState::default(),
        };
        scene.on(Input::ClientState(client.clone()));
        if seed.is_multiple_of(3) {
            scene.hear(&Event {
                transcript: Some("/t.jsonl".into()),
                ..event(Name::Notification)
            });
        }
        Self {
            seed,
            scene,
            client,
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            turn: 0,
            context: 0,
            pushed: Vec::new(),
            offered: HashMap::new(),
            reached: Vec::new(),
            written: Vec::new(),
            tool_use: None,
            unasked: Vec::new(),
            answered: 0,
            has_results: false,
            arrived: HashSet::new(),
            settled: Vec::new(),
            drops: seed.is_multiple_of(6),
            of_step: None,
            is_ended: false,
            reads_always: seed.is_multiple_of(6),
        }
    }

    fn of_now(&self, name: Name) -> Event {
        of_turn(&format!("p{}", self.turn), event(name))
    }

    /// Hands the hook its answer: it prints it, dies before, or is slow.
    fn answer(&mut self, answer: &Answer) {
        let Some(offer) = answer.offer else { return };
        let text = answer.stdout.replace("\\n", "\n");
        match self.dice.below(4) {
            0 => drop(self.scene.on(Input::NotPrinted(offer))),
            1 => drop(self.offered.insert(offer, text)),
            _ => {
                self.check_marks(&text);
                self.prints(offer, text);
            }
        }
    }

    /// A copy of a message that the session has is marked. A reminder and a result are none.
    fn check_marks(&self, text: &str) {
        for id in (0..MESSAGES).map(id) {
            let is_another =
                is_copy(text, &id) && self.reached.iter().any(|text| is_copy(text, &id));
            assert!(
                !is_another || is_marked(text, &id),
                "seed {}: another copy of {id} without a mark: {text}",
                self.seed
            );
        }
    }

    fn prints(&mut self, offer: u64, text: String) {
        let may_drop = self.drops && !text.contains("UserPromptSubmit");
        if !self.is_ended && (!may_drop || self.dice.below(3) > 0) {
            self.reached.push(text);
        }
        self.scene.on(Input::Printed(offer));
    }

    fn hear(&mut self, event: &Event) {
        let answer = self.scene.hear(event);
        if answer.stdout.contains("\"block\"") {
            return;
        }
        if let Some(prompt) = &event.prompt {
            self.check_marks(prompt);
            self.reached.push(prompt.clone());
        }
        self.answer(&answer);
    }

    /// A request to the model holds the conversation, and it answers, unless a step is under way.
    fn model_answers(&mut self) {
        if self.tool_use.is_none() {
            self.unasked.clear();
            self.answered = self.reached.len();
        }
    }

    fn ends_step_and_turn(&mut self) {
        self.ends_step();
        self.has_results = true;
        self.ends_turn();
    }

    /// A turn ends: with an answer, or with a tool of the step before.
    fn ends_turn(&mut self) {
        self.is_ended = self.has_results && self.dice.below(3) == 0;
        if !self.is_ended {
            self.model_answers();
        } else if self.seed.is_multiple_of(3)
            && let Some(text) = self.of_step
        {
            self.reached.remove(text);
            self.written.truncate(text);
        }
        self.is_ended &= self.seed.is_multiple_of(3);
        self.hear(&self.of_now(Name::Stop));
        self.is_ended = false;
    }

    fn act(&mut self) {
        let which = self.dice.below(24);
        self.acts(which);
        self.writes();
        self.has_results = matches!(which, 4 | 5);
        self.of_step = self.of_step.filter(|_| self.has_results);
    }

    fn acts(&mut self, which: u64) {
        match which {
            0 | 1 => {
                let number = u32::try_from(self.dice.below(u64::from(MESSAGES))).unwrap();
                if !self.settled.contains(&id(number)) {
                    let fields = if number % 3 == 0 { news() } else { json!({}) };
                    self.arrived.insert(number);
                    self.scene.arrive(vec![message(number, fields)]);
                }
            }
            2 | 3 => {
                self.turn += 1;
                self.tool_use = None;
                self.hear(&self.of_now(Name::UserPromptSubmit));
            }
            4 | 5 => self.ends_step(),
            6 | 7 => self.ends_turn(),
            8 => self.hear(&self.of_now(Name::StopFailure)),
            9 => self.hear(&self.of_now(Name::PreCompact)),
            10 => {
                let compacted = starts("compact", "s1");
                self.hear(&compacted);
            }
            11 | 12 if !self.pushed.is_empty() => {
                let which = self.dice.below(self.pushed.len() as u64) as usize;
                let prompt = self.pushed.swap_remove(which);
                self.turn += 1;
                self.hear(&Event {
                    prompt: Some(prompt),
                    ..self.of_now(Name::UserPromptSubmit)
                });
            }
            13 => {
                let offer = self.offered.keys().next().copied();
                if let Some((offer, text)) =
                    offer.and_then(|offer| self.offered.remove_entry(&offer))
                {
                    self.prints(offer, text);
                }
            }
            14 => self.scene.passes(self.dice.below(20)),
            15 | 16 => self.waits(),
            17 if self.dice.below(8) == 0 => {
                let done = id(u32::try_from(self.dice.below(u64::from(MESSAGES))).unwrap());
                self.scene.on(Input::Settled(vec![done.clone()]));
                self.settled.push(done);
            }
            18 => {
                self.model_answers();
                let tool_use = format!("t{}", self.dice.below(1_000_000));
                self.scene.uses(&format!("p{}", self.turn), &tool_use);
                self.tool_use.get_or_insert(tool_use);
            }
            19 => {
                self.model_answers();
                self.hear(&self.of_now(Name::PermissionRequest));
            }
            20 => self.ends_step_and_turn(),
            21 if self.dice.below(8) == 0 => self.is_renamed(),
            _ => self.push(),
        }
    }

    /// The session takes another name, and comes back to its own: the store delivers its messages again.
    fn is_renamed(&mut self) {
        for name in ["backend", "homeassistant"] {
            self.scene.on(Input::Begins(agent(name), 0));
        }
        let open = self.arrived.iter().copied();
        let mut open: Vec<_> = open
            .filter(|number| !self.settled.contains(&id(*number)))
            .collect();
        open.sort_unstable();
        for number in open {
            let fields = if number % 3 == 0 { news() } else { json!({}) };
            self.scene.arrive(vec![message(number, fields)]);
        }
    }

    /// A wait returns a message, as one of several tools of a step or alone.
    fn waits(&mut self) {
        let number = u32::try_from(self.dice.below(u64::from(MESSAGES))).unwrap();
        if !self.scene.takes(number) || self.dice.below(2) == 0 {
            return;
        }
        if self.tool_use.is_some() && self.times(number) == 0 {
            self.unasked.push(id(number));
        }
        self.reached.push(id(number).to_string());
        self.scene
            .present(number, Via::WaitForMessage, self.tool_use.as_deref());
    }

    /// The results of a step are there: the next request to the model holds them, if the turn goes on.
    fn ends_step(&mut self) {
        self.model_answers();
        let (ended, before) = (self.tool_use.take(), self.reached.len());
        self.hear(&Event {
            tool_use_ids: ended.iter().cloned().collect(),
            ..self.of_now(Name::PostToolBatch)
        });
        self.of_step = (self.reached.len() > before).then_some(before);
        self.check_receipts();
    }

    fn push(&mut self) {
        self.writes();
        match self.scene.next() {
            Todo::Post(_, text) => self.pushed.push(text),
            Todo::Wake(text) => self
                .pushed
                .push(format!("<task-notification>{text}</task-notification>")),
            Todo::Notify(text) => self.pushed.push(text),
            Todo::AskClient => drop(self.scene.on(Input::ClientState(self.client.clone()))),
            Todo::Read(_) => {
                let named: Vec<_> = (0..MESSAGES + REWOUND)
                    .filter(|number| self.times(*number) > 0)
                    .collect();
                let is_read = self.reads_always || self.dice.below(3) > 0;
                let is_answered = |number: &u32| {
                    let mut texts = self.reached.iter().take(self.answered);
                    texts.any(|text| text.contains(id(*number).as_str()))
                };
                let answered: Vec<_> = named.iter().copied().filter(is_answered).collect();
                let recorded = is_read.then(|| Recorded {
                    ages: self.ages(),
                    ..standing(&named, &answered)
                });
                self.scene.on(Input::Conversation(recorded));
            }
            Todo::Look(at) => assert!(
                at.is_none_or(|at| at > self.scene.now),
                "it looks without end"
            ),
        }
    }

    /// Returns how long ago the latest line with each message was written.
    fn ages(&self) -> HashMap<MessageId, Duration> {
        let mut ages = HashMap::new();
        for (text, at) in self.reached.iter().zip(&self.written) {
            let ids = (0..MESSAGES + REWOUND).map(id);
            let named = ids.filter(|id| text.contains(id.as_str()));
            ages.extend(named.map(|id| (id, self.scene.now.duration_since(*at))));
        }
        ages
    }

    /// The client writes what reached it.
    fn writes(&mut self) {
        self.written.resize(self.reached.len(), self.scene.now);
    }

    /// Returns how many texts of the conversation name the message.
    fn times(&self, number: u32) -> usize {
        self.reached
            .iter()
            .filter(|text| text.contains(id(number).as_str()))
            .count()
    }

    /// A person types now and then, and every turn ends well.
    fn is_quiet(&mut self, turns: usize) {
        for _ in 0..turns {
            self.scene.now += Duration::from_secs(600);
            self.push();
            self.turn += 1;
            let events = [Name::UserPromptSubmit, Name::PostToolBatch, Name::Stop]
                .map(|name| self.of_now(name));
            for event in events {
                if event.name != Name::UserPromptSubmit {
                    self.model_answers();
                }
                let answer = self.scene.hear(&event);
                if let Some(offer) = answer.offer {
                    self.reached.push(answer.stdout);
                    self.scene.on(Input::Printed(offer));
                }
            }
            // Files are read a second later, and again if they were not written yet.
            for _ in 0..12 {
                self.scene.now += Duration::from_secs(1);
                self.push();
            }
            self.check_receipts();
        }
        assert_eq!(
            self.scene.hop.unread(),
            0,
            "seed {}: a message that no way tries again",
            self.seed
        );
        for number in self
            .arrived
            .iter()
            .filter(|number| !self.settled.contains(&id(**number)))
        {
            assert!(
                self.times(*number) > 0,
                "seed {}: {number} is lost",
                self.seed
            );
        }
    }

    /// No receipt claims a message whose text did not reach the client, or was in no request to the model where it claims that.
    fn check_receipts(&mut self) {
        let seed = self.seed;
        for progress in self.scene.receipts() {
            assert!(
                progress.context >= self.context,
                "seed {seed}: an older context"
            );
            self.context = progress.context;
            let copies = |claimed: &MessageId| {
                let texts = self.reached.iter();
                texts.filter(|text| text.contains(claimed.as_str())).count()
            };
            let is_seen = progress.stage == Stage::Seen || progress.seen_via.is_some();
            for claimed in &progress.message_ids {
                assert!(
                    progress.stage != Stage::InSession || copies(claimed) > 0,
                    "seed {seed}: {claimed} is in_session by {:?} without evidence",
                    progress.via
                );
                assert!(
                    !is_seen || !self.unasked.contains(claimed) || copies(claimed) > 1,
                    "seed {seed}: {claimed} is seen, and no request held it"
                );
            }
        }
    }
}

#[test]
fn random_events_cause_no_false_receipt_and_leave_no_message_behind() {
    for seed in 0..SESSIONS {
        let mut play = Play::new(seed);
        for _ in 0..EVENTS {
            play.act();
            play.check_receipts();
        }
        play.is_quiet(40);
        if seed.is_multiple_of(3) {
            let before = play.reached.len();
            play.scene.arrive(vec![
                message(MESSAGES, json!({})),
                message(MESSAGES + 1, news()),
            ]);
            play.reads_always = true;
            play.is_quiet(20);
            play.reached.truncate(before);
            play.answered = play.answered.min(before);
            play.is_quiet(20);
            let times = (MESSAGES..MESSAGES + REWOUND)
                .map(|number| play.times(number))
                .collect::<Vec<_>>();
            assert_eq!(
                times,
                [1, 1],
                "seed {seed}: what a rewind took out comes again, once"
            );
        }
    }
}
