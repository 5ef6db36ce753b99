//! A policy: ordered rules, of which the first match decides. It uses no file, no store and no clock.

use std::collections::BTreeMap;

use c3po_shared::ids::AGENT_ID_MAX;
use c3po_shared::limits::{LABEL_MAX, POLICY_RULES_MAX};
use c3po_shared::policy::{Effect, Verb};
use serde::{Deserialize, Deserializer, de};

use super::glob::Glob;
use super::triage::{Triage, TriageAgent};

/// The sender or the recipient, with its known facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Party<'a> {
    /// Its name.
    pub id: &'a str,
    /// Its role, if it has one and a rule needs it.
    pub role: Option<&'a str>,
    /// Its host, if known and a rule needs it.
    pub host: Option<&'a str>,
}

/// The decision of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the action is allowed.
    pub effect: Effect,
    /// The reason.
    pub reason: String,
    /// The number of the deciding rule, from 1; `None` for the default.
    pub rule: Option<usize>,
}

/// The rules, and the default for each verb.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    #[serde(default, rename = "default")]
    defaults: BTreeMap<Verb, Effect>,
    #[serde(default, rename = "rule", deserialize_with = "rules")]
    rules: Vec<Rule>,
    #[serde(default)]
    triage: Triage,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(deserialize_with = "one_or_more")]
    from: Vec<Selector>,
    #[serde(deserialize_with = "one_or_more")]
    to: Vec<Selector>,
    #[serde(deserialize_with = "one_or_more")]
    verb: Vec<VerbSelector>,
    effect: Effect,
    #[serde(default)]
    reason: Reason,
}

/// The agents that a rule matches.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum Selector {
    Id(Glob),
    Role(Glob),
    Host(Glob),
}

/// The actions that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
enum VerbSelector {
    Any,
    One(Verb),
}

/// The reason shown to a sender that the rule denies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Reason(String);

impl TryFrom<String> for Selector {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.is_empty() || text.chars().count() > LABEL_MAX {
            return Err(format!("a pattern has 1 to {LABEL_MAX} characters"));
        }
        match text.split_once(':') {
            Some(("role", glob)) if !glob.is_empty() => Ok(Self::Role(Glob::new(glob))),
            Some(("host", glob)) if !glob.is_empty() => Ok(Self::Host(Glob::new(glob))),
            Some(_) => Err(format!(
                "'{}' is not one of ID, role:ROLE, host:HOST",
                clip(&text)
            )),
            None if text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_.-*?".contains(c)) =>
            {
                Ok(Self::Id(Glob::new(&text)))
            }
            None => Err(format!(
                "'{}' matches no agent id, which has only A-Z a-z 0-9 _ . -",
                clip(&text)
            )),
        }
    }
}

impl TryFrom<String> for VerbSelector {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "*" {
            Ok(Self::Any)
        } else {
            text.parse().map(Self::One)
        }
    }
}

impl TryFrom<String> for Reason {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.chars().count() {
            count if count > LABEL_MAX => Err(format!(
                "a reason has at most {LABEL_MAX} characters, not {count}"
            )),
            _ => Ok(Self(text)),
        }
    }
}

fn clip(text: &str) -> String {
    text.chars().take(AGENT_ID_MAX).collect()
}

/// Deserializes a single value or a list.
fn one_or_more<'de, D: Deserializer<'de>, T: Deserialize<'de> + TryFrom<String, Error = String>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    struct Either<T>(std::marker::PhantomData<T>);

    impl<'de, T: Deserialize<'de> + TryFrom<String, Error = String>> de::Visitor<'de> for Either<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a text or a list of texts")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            T::try_from(text.to_owned())
                .map(|one| vec![one])
                .map_err(E::custom)
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(one) = list.next_element()? {
                all.push(one);
            }
            // An empty list would make a rule that never matches, which is certainly a mistake.
            if all.is_empty() {
                Err(de::Error::custom("the list is empty"))
            } else {
                Ok(all)
            }
        }
    }

    from.deserialize_any(Either(std::marker::PhantomData))
}

fn rules<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Rule>, D::Error> {
    let rules = Vec::<Rule>::deserialize(from)?;
    match rules.len() {
        count if count > POLICY_RULES_MAX => Err(de::Error::custom(format!(
            "{count} rules; at most {POLICY_RULES_MAX} are allowed"
        ))),
        _ => Ok(rules),
    }
}

impl Selector {
    fn matches(&self, party: Party<'_>) -> bool {
        match self {
            Self::Id(glob) => glob.matches(party.id),
            Self::Role(glob) => party.role.is_some_and(|role| glob.matches(role)),
            Self::Host(glob) => party.host.is_some_and(|host| glob.matches(host)),
        }
    }
}

impl Rule {
    fn is_about(&self, verb: Verb) -> bool {
        self.verb
            .iter()
            .any(|one| matches!(one, VerbSelector::Any) || *one == VerbSelector::One(verb))
    }

    fn matches(&self, from: Party<'_>, to: Party<'_>, verb: Verb) -> bool {
        self.is_about(verb)
            && self.from.iter().any(|one| one.matches(from))
            && self.to.iter().any(|one| one.matches(to))
    }
}

impl Policy {
    /// Parses the text of a policy. Errors name line and column, in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| {
            let why = error.message().trim().replace('\n', "; ");
            match error.span() {
                Some(span) => format!("{}: {why}", place(text, span.start)),
                None => why,
            }
        })
    }

    /// Returns how many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.defaults.is_empty() && self.triage.is_empty()
    }

    /// Binds the right of triage to hosts, and returns the agents that lose it ([`Triage::bind`]).
    pub(super) fn bind_triage(&mut self) -> Vec<TriageAgent> {
        self.triage.bind()
    }

    /// Returns which agents may answer for people.
    pub(crate) fn triage(&self) -> &Triage {
        &self.triage
    }

    /// Decides about an action: by the first rule that matches, or else by the default.
    pub fn decide(&self, from: Party<'_>, to: Party<'_>, verb: Verb) -> Verdict {
        let matching = (1..)
            .zip(&self.rules)
            .find(|(_, rule)| rule.matches(from, to, verb));
        if let Some((number, rule)) = matching {
            return Verdict {
                effect: rule.effect,
                reason: rule.reason.0.clone(),
                rule: Some(number),
            };
        }
        let (effect, reason) = match self.defaults.get(&verb) {
            Some(effect) => (
                *effect,
                format!("no rule matches, and [default] is {effect}"),
            ),
            None => (Effect::Allow, "no rule matches".to_owned()),
        };
        Verdict {
            effect,
            reason,
            rule: None,
        }
    }

    /// Returns whether the policy can deny this verb at all. If not, no facts about the agents are needed.
    pub fn may_deny(&self, verb: Verb) -> bool {
        self.defaults.get(&verb) == Some(&Effect::Deny)
            || self
                .rules
                .iter()
                .any(|rule| rule.effect == Effect::Deny && rule.is_about(verb))
    }

    /// Returns whether rules about this verb need the role of the sender.
    pub fn asks_role_of_sender(&self, verb: Verb) -> bool {
        self.rules.iter().any(|rule| {
            rule.is_about(verb) && rule.from.iter().any(|one| matches!(one, Selector::Role(_)))
        })
    }

    /// Returns whether rules about this verb need more of the recipient than its name.
    pub fn asks_about_recipient(&self, verb: Verb) -> bool {
        self.rules.iter().any(|rule| {
            rule.is_about(verb) && rule.to.iter().any(|one| !matches!(one, Selector::Id(_)))
        })
    }
}

/// Returns a position in a text as line and column.
fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .map_or(0, |rest| rest.chars().count())
        + 1;
    format!("line {line}, column {column}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party<'a>(id: &'a str, role: Option<&'a str>, host: Option<&'a str>) -> Party<'a> {
        Party { id, role, host }
    }

    fn verdict(policy: &str, from: &str, to: &str, verb: Verb) -> (Effect, Option<usize>) {
        let policy = Policy::parse(policy).expect("a policy");
        let verdict = policy.decide(party(from, None, None), party(to, None, None), verb);
        (verdict.effect, verdict.rule)
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = r#"
            [[rule]]
            from = "guest-*"
            to = "front-desk"
            verb = ["message", "reply"]
            effect = "allow"

            [[rule]]
            from = ["guest-*", "visitor"]
            to = "*"
            verb = "*"
            effect = "deny"
            reason = "guests speak to the front desk"
        "#;
        assert_eq!(
            verdict(policy, "guest-1", "front-desk", Verb::Message),
            (Effect::Allow, Some(1))
        );
        assert_eq!(
            verdict(policy, "guest-1", "front-desk", Verb::Broadcast),
            (Effect::Deny, Some(2))
        );
        assert_eq!(
            verdict(policy, "visitor", "front-desk", Verb::Reply),
            (Effect::Deny, Some(2))
        );
        assert_eq!(
            verdict(policy, "front-desk", "guest-1", Verb::Reply),
            (Effect::Allow, None)
        );
        let policy = Policy::parse(policy).expect("a policy");
        let denied = policy.decide(
            party("guest-2", None, None),
            party("nas", None, None),
            Verb::Message,
        );
        assert_eq!(denied.reason, "guests speak to the front desk");
    }

    #[test]
    fn without_rules_everything_is_allowed() {
        for verb in Verb::ALL {
            assert_eq!(
                verdict("", "a", "b", *verb),
                (Effect::Allow, None),
                "{verb}"
            );
        }
        let changed = "[default]\nmessage = \"deny\"";
        assert_eq!(
            verdict(changed, "a", "b", Verb::Message),
            (Effect::Deny, None)
        );
        assert_eq!(
            verdict(changed, "a", "b", Verb::Reply),
            (Effect::Allow, None)
        );
    }

    #[test]
    fn roles_and_hosts_match_only_where_they_are_known() {
        let policy = r#"
            [[rule]]
            from = "host:cam-*"
            to = "role:op?"
            verb = "message"
            effect = "deny"
        "#;
        let policy = Policy::parse(policy).expect("a policy");
        let check = |host, role, expected| {
            let verdict = policy.decide(
                party("a", None, host),
                party("b", role, None),
                Verb::Message,
            );
            assert_eq!(verdict.effect, expected, "{host:?} {role:?}");
        };
        check(Some("cam-1"), Some("ops"), Effect::Deny);
        check(Some("nas"), Some("ops"), Effect::Allow);
        check(Some("cam-1"), None, Effect::Allow);
        check(None, Some("ops"), Effect::Allow);
        assert!(
            policy.asks_about_recipient(Verb::Message)
                && !policy.asks_role_of_sender(Verb::Message)
        );
        assert!(policy.may_deny(Verb::Message) && !policy.may_deny(Verb::Reply));
        assert!(!policy.asks_about_recipient(Verb::Reply));
    }

    #[test]
    fn errors_in_the_file_are_reported_with_line_and_column() {
        let rule = |line: &str| {
            format!(
                "[[rule]]\nfrom = \"a\"\nto = \"b\"\nverb = \"message\"\neffect = \"deny\"\n{line}"
            )
        };
        let check = |text: &str, place: &str, part: &str| {
            let error = Policy::parse(text).expect_err("it is wrong");
            assert!(
                error.starts_with(place) && error.contains(part) && !error.contains('\n'),
                "{error}"
            );
        };
        check(&rule("colour = \"red\""), "line 6, column 1", "colour");
        check(
            &rule("").replace("\"deny\"", "\"forbid\""),
            "line 5, column 10",
            "'forbid' is not one of allow, deny",
        );
        check(
            &rule("").replace("\"message\"", "\"shout\""),
            "line 4, column 8",
            "'shout' is not one of message",
        );
        check(
            &rule("").replace("\"a\"", "\"group:a\""),
            "line 2, column 8",
            "role:ROLE",
        );
        check(
            &rule("").replace("\"a\"", "[]"),
            "line 2, column 8",
            "the list is empty",
        );
        check(
            &rule("").replace("\"a\"", "\"Küche\""),
            "line 2, column 8",
            "matches no agent id",
        );
        check(
            "[default]\nfly = \"deny\"",
            "line 2, column 1",
            "'fly' is not one of",
        );
        check(
            "[[rule]]\nfrom = \"a\"",
            "line 1, column 1",
            "missing field `to`",
        );
        check("[[rule]\n", "line 1, column", "");
        check("rules = 1", "line 1, column 1", "rules");
    }
}
