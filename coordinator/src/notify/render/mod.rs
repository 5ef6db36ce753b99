//! The text and the buttons of a push. Pure: the same message gives the same push.

use c3po_shared::ids::MessageId;
use c3po_shared::limits::PUSH_BYTES_MAX;
use c3po_shared::message::Message;
use c3po_shared::question::{Choice, ClientRequest, Part, Question};
use c3po_shared::rows::end_of_row;
use c3po_shared::text::harmless;
use c3po_shared::vocabulary::{Priority, QuestionKind};
use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::codes::Codes;
use super::config::{Content, Person};
use super::mask::masked;
use super::options::{is_numbered, listed};
use super::reply::{ALLOW, DENY, Line, takes_words};

/// The sequence id of the push that only has a number.
pub(super) const WAITING: &str = "c3po-waiting";
/// The most buttons with options.
const BUTTONS_MAX: usize = 2;
/// The most rows of a text and its options with buttons, and the columns of a row: a notification has no room for more.
const ROWS_MAX: usize = 10;
const ROW: usize = 45;
/// The columns of a title.
const TITLE_ROW: usize = 35;
/// The largest push, in bytes of JSON. ntfy refuses more than 8,192.
const JSON_BYTES_MAX: usize = 8_000;
/// The longest title, in characters.
const TITLE_MAX: usize = 120;
/// The mark in place of a text that was cut out.
const CUT: &str = "\n[…]\n";

/// A push as ntfy takes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Push {
    topic: String,
    title: String,
    message: String,
    priority: u8,
    tags: Vec<&'static str>,
    sequence_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    click: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    actions: Vec<serde_json::Value>,
}

impl Push {
    /// Returns a push that is not about a message.
    pub(super) fn test(
        person: &Person,
        sequence: &str,
        text: &str,
        button: Option<serde_json::Value>,
    ) -> Self {
        Self {
            topic: person.topic.clone(),
            title: "c3po: a test".to_owned(),
            message: text.to_owned(),
            priority: 4,
            tags: vec!["robot"],
            sequence_id: sequence.to_owned(),
            click: None,
            actions: button.into_iter().collect(),
        }
    }

    /// Gives it this text, the list of the options and the last line. The text is cut until ntfy takes the push.
    fn fill(&mut self, text: &str, options: &str, end: &str) {
        let mut most = PUSH_BYTES_MAX;
        loop {
            let left = most.saturating_sub(options.len() + end.len());
            self.message = cut(text, left) + options + end;
            let size = serde_json::to_string(self).map_or(0, |json| json.len());
            let excess = size.saturating_sub(JSON_BYTES_MAX);
            if excess == 0 || most == 0 {
                return;
            }
            // A byte has at most six in JSON, so no more than necessary is cut.
            most = most.saturating_sub(excess.div_ceil(6));
        }
    }

    /// Returns whether a line of the topic is about this push.
    pub(super) fn is(&self, line: &Line) -> bool {
        match &line.sequence_id {
            Some(sequence) => *sequence == self.sequence_id,
            None => line.title == self.title && line.message == self.message,
        }
    }
}

/// The circumstances of a push besides its message.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) person: &'a Person,
    /// The codes, if answers by push are possible: the topic is private and there is a reply topic.
    pub(super) codes: Option<&'a Codes>,
    /// Whether buttons are possible: the token of the reply topic can only write.
    pub(super) buttons: bool,
    /// How much is shown.
    pub(super) content: Content,
    /// The URL of the coordinator for people.
    pub(super) public_url: Option<&'a str>,
}

/// Returns the sequence id of the pushes of a message, by which they are replaced and deleted.
pub(super) fn sequence(id: &MessageId) -> String {
    let digest = digest(&SHA256, id.as_str().as_bytes());
    format!("c3po-{}", HEXLOWER.encode(&digest.as_ref()[..8]))
}

impl Frame<'_> {
    /// Returns the push of a message.
    pub(super) fn push(&self, message: &Message) -> Push {
        let buttons = self.buttons(message);
        let words = self.content == Content::Full && takes_words(message);
        let mut push = Push {
            topic: self.person.topic.clone(),
            title: self.title(message),
            message: waits(message).to_owned(),
            priority: priority(message),
            tags: if message.requires_response {
                vec!["robot", "warning"]
            } else {
                vec!["robot"]
            },
            sequence_id: sequence(&message.id),
            click: self.page(message),
            actions: self.actions(message, &buttons, words),
        };
        if self.content == Content::Full {
            let question = message.question.as_deref();
            let parts = question.map_or(&[][..], |question| &question.parts);
            let options = listed(parts);
            let end = self.codes.filter(|_| words).map(|codes| {
                let is_free = parts.is_empty() || parts.iter().any(|part| part.allow_text);
                let answer = match (options.is_empty(), is_numbered(parts), is_free) {
                    (true, ..) => "your words",
                    (false, true, true) => "a number or your words",
                    (false, true, false) => "a number",
                    (false, false, true) => "an option or your words",
                    (false, false, false) => "an option",
                };
                let code = codes.typed(message);
                format!("\nAnswer in the reply topic: {code} and {answer}")
            });
            push.fill(&shown_text(message), &options, &end.unwrap_or_default());
        }
        push
    }

    /// Returns the push with the number of open questions.
    pub(super) fn summary(&self, count: usize) -> Push {
        let message = match count {
            1 => "1 question waits".to_owned(),
            count => format!("{count} questions wait"),
        };
        Push {
            topic: self.person.topic.clone(),
            title: "c3po".to_owned(),
            message,
            priority: 4,
            tags: vec!["robot", "warning"],
            sequence_id: WAITING.to_owned(),
            click: self.public_url.map(|url| format!("{url}/q")),
            actions: Vec::new(),
        }
    }

    /// Returns the sender and the title. The end of a long one is cut.
    fn title(&self, message: &Message) -> String {
        if self.content == Content::None {
            return "c3po".to_owned();
        }
        let title = format!("{} {}", sender(message), about(message));
        match title.char_indices().nth(TITLE_MAX - 1) {
            Some((last, c)) if last + c.len_utf8() < title.len() => title[..last].to_owned() + "…",
            _ => title,
        }
    }

    /// Returns whether a push with buttons shows all that a verdict decides about: also the tool in the title, and each
    /// character.
    fn is_whole(&self, message: &Message, question: &Question) -> bool {
        let Some(request) = &question.request else {
            return false;
        };
        let has_ink = ![&text_of(message), &request.input]
            .iter()
            .any(|text| text.contains(has_no_ink));
        let is_hidden = |c: char| c.is_whitespace() || has_no_ink(c);
        let has_tool = !request.tool.is_empty()
            && !request.tool.contains(is_hidden)
            && self
                .title(message)
                .ends_with(&format!("] {}", request.tool));
        has_ink && has_tool && (question.kind != QuestionKind::Choice || has_its_parts(question))
    }

    /// Returns the options that have buttons, with their labels: none without a reply topic, if there are more than two, if
    /// something is masked or has no room in a notification, and for requests of clients unless the person wants that and each
    /// character is shown.
    pub(super) fn buttons(&self, message: &Message) -> Vec<(String, String)> {
        let Some(question) = message.question.as_deref() else {
            return Vec::new();
        };
        let [part] = &question.parts[..] else {
            return Vec::new();
        };
        if !self.buttons || self.codes.is_none() || !self.is_shown(message) {
            return Vec::new();
        }
        let may_decide = self.person.verdict_buttons && self.is_whole(message, question);
        if question.needs_verdict() && !may_decide {
            return Vec::new();
        }
        if !matches!(question.kind, QuestionKind::Ask | QuestionKind::Choice) {
            return [(ALLOW, "Allow"), (DENY, "Deny")]
                .map(|(id, label)| (id.to_owned(), label.to_owned()))
                .into();
        }
        let is_few = part.options.len() <= BUTTONS_MAX && !part.multi;
        let one = |choice: &Choice| (choice.id.clone(), choice.label.clone());
        part.options.iter().filter(|_| is_few).map(one).collect()
    }

    /// Returns whether a notification shows the title, the text and the options, and nothing of them is masked.
    fn is_shown(&self, message: &Message) -> bool {
        let parts = message.question.iter().flat_map(|asked| &asked.parts);
        let labels = parts.flat_map(|part| part.options.iter().map(|option| option.label.as_str()));
        let is_plain = |text: &str| masked(text) == text;
        let options = message.question.as_ref().map(|asked| listed(&asked.parts));
        let text = shown_text(message) + &options.unwrap_or_default();
        let has_room = rows(&text) <= ROWS_MAX;
        self.content == Content::Full
            && has_room
            && is_plain(&text_of(message))
            && labels.chain([subject(message)]).all(is_plain)
    }

    fn actions(
        &self,
        message: &Message,
        buttons: &[(String, String)],
        words: bool,
    ) -> Vec<serde_json::Value> {
        let person = self.person;
        let reply = person
            .reply
            .as_ref()
            .and_then(|reply| Some((&reply.topic, reply.token.as_ref()?)));
        let mut actions = Vec::new();
        if let (Some(codes), Some((topic, token))) = (self.codes, reply) {
            actions.extend(buttons.iter().map(|(id, label)| {
                let code = codes.button(message, id);
                let body = json!({"question": message.id, "option": id, "code": code});
                json!({
                    "action": "http", "label": label, "method": "POST", "clear": true,
                    "url": format!("{}/{topic}", person.server),
                    "headers": {"Authorization": format!("Bearer {}", token.reveal())},
                    "body": body.to_string(),
                })
            }));
        }
        if let Some(page) = self.page(message).filter(|_| message.requires_response) {
            let label = if words { "Answer in words" } else { "Open" };
            actions.push(json!({"action": "view", "label": label, "url": page}));
        }
        actions
    }

    fn page(&self, message: &Message) -> Option<String> {
        let path = if message.requires_response {
            format!("/q/{}", message.id)
        } else {
            "/q".to_owned()
        };
        self.public_url.map(|url| url.to_owned() + &path)
    }
}

/// Returns the tool of a request of a client, else the title of the message.
fn subject(message: &Message) -> &str {
    let question = message.question.as_deref();
    match question.and_then(|question| question.request.as_ref()) {
        Some(request) => request.tool.as_str(),
        None => message.title.as_deref().unwrap_or_else(|| waits(message)),
    }
}

/// Returns the subject as it is shown.
fn about(message: &Message) -> String {
    harmless(&masked(subject(message)), false)
}

/// Returns the agent and its host as they are shown.
fn sender(message: &Message) -> String {
    let host = harmless(message.from_host.as_deref().unwrap_or("?"), false);
    format!("[{}@{host}]", message.from_agent)
}

/// Returns the text as it is shown, below the sender and the title if the title has no room for them: a notification shows one
/// row of it.
fn shown_text(message: &Message) -> String {
    let (sender, about, text) = (sender(message), about(message), masked(&text_of(message)));
    let title = format!("{sender} {about}");
    let fits = |text: &str| end_of_row(text, TITLE_ROW) == text.len();
    let kind = message.question.as_deref().map(|question| question.kind);
    let is_needless =
        about == waits(message) || kind == Some(QuestionKind::Choice) || text.starts_with(&about);
    if fits(&title) || fits(&sender) && is_needless {
        return text;
    }
    let head = if fits(&sender) { about } else { title };
    format!("{head}\n\n{text}")
}

/// Returns the words for a message of which no more is shown.
fn waits(message: &Message) -> &'static str {
    match message.question.as_deref().map(|question| question.kind) {
        _ if !message.requires_response => "There is news",
        None | Some(QuestionKind::Ask | QuestionKind::Choice) => "A question waits",
        Some(_) => "A request waits for your decision",
    }
}

/// Returns the priority of ntfy. Sessions that wait for an answer stand still, so questions are above news.
fn priority(message: &Message) -> u8 {
    match (message.requires_response, message.priority) {
        (true, Priority::Urgent | Priority::High) | (false, Priority::Urgent) => 5,
        (true, Priority::Normal) | (false, Priority::High) => 4,
        (true, Priority::Low) | (false, Priority::Normal) => 3,
        (false, Priority::Low) => 2,
    }
}

/// Returns the text of a message: of a request of a client its whole input, or its questions with the descriptions of their
/// options, else the message with its context.
fn text_of(message: &Message) -> String {
    let text = match message.question.as_deref() {
        Some(Question {
            kind: QuestionKind::Choice,
            parts,
            request,
            ..
        }) => {
            let input = request.as_ref().and_then(ChoiceInput::of);
            input.map_or_else(
                || join(parts.iter().map(|part| part.text.clone())),
                |input| join(input.questions.iter().map(ChoiceQuestion::text)),
            )
        }
        Some(Question {
            request: Some(request),
            ..
        }) => {
            let by = request
                .subagent
                .as_ref()
                .map(|kind| format!("Subagent {kind}\n"));
            by.unwrap_or_default() + &request.input
        }
        _ => {
            let context = message
                .context
                .as_deref()
                .map(|context| format!("\n\n{context}"));
            message.text().to_owned() + &context.unwrap_or_default()
        }
    };
    harmless(&text, true)
}

/// Returns whether the parts of a question of the client, which a push shows, are those of its request, which a verdict is about.
fn has_its_parts(question: &Question) -> bool {
    let input = question.request.as_ref().and_then(ChoiceInput::of);
    let asked = input.map(|input| input.questions).unwrap_or_default();
    let is_same = |(part, asked): (&Part, &ChoiceQuestion)| {
        let labels = part.options.iter().map(|option| &option.label);
        part.text == asked.question && labels.eq(asked.options.iter().map(|option| &option.label))
    };
    asked.len() == question.parts.len() && question.parts.iter().zip(&asked).all(is_same)
}

/// The input of a question of the client, if a push can show all of its texts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChoiceInput {
    questions: Vec<ChoiceQuestion>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChoiceQuestion {
    #[serde(default)]
    header: String,
    question: String,
    #[serde(default, rename = "multiSelect")]
    _multi: bool,
    options: Vec<ChoiceOption>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChoiceOption {
    label: String,
    #[serde(default)]
    description: String,
}

impl ChoiceInput {
    fn of(request: &ClientRequest) -> Option<Self> {
        serde_json::from_str(&request.input).ok()
    }
}

impl ChoiceQuestion {
    /// Returns the question, and each description of an option on a line of its own.
    fn text(&self) -> String {
        let described = self
            .options
            .iter()
            .filter(|option| !option.description.is_empty());
        let described = described.map(|option| format!("{}: {}", option.label, option.description));
        let head = [&self.header, &self.question]
            .into_iter()
            .filter(|text| !text.is_empty())
            .cloned();
        join(head.chain(described))
    }
}

fn join(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns how many rows a text has.
fn rows(text: &str) -> usize {
    text.lines().map(rows_of_line).sum()
}

fn rows_of_line(mut line: &str) -> usize {
    let mut rows = 1;
    loop {
        line = &line[end_of_row(line, ROW)..];
        if line.is_empty() {
            return rows;
        }
        rows += 1;
    }
}

/// Returns whether a phone shows nothing for a character: the default ignorable code points of Unicode, and blanks that are
/// neither spaces nor ends of lines.
fn has_no_ink(c: char) -> bool {
    (c.is_whitespace() && !matches!(c, ' ' | '\n'))
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Returns a text of at most so many bytes. A longer one loses its middle, because commands often do harm at their end.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let half = most.saturating_sub(CUT.len()) / 2;
    let begin = (0..=half)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    let end = (text.len() - half..text.len()).find(|at| text.is_char_boundary(*at));
    format!(
        "{}{CUT}{}",
        &text[..begin],
        &text[end.unwrap_or(text.len())..]
    )
}

#[cfg(test)]
pub(super) mod tests;
