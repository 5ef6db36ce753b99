//! Tokens: every message, prompt, summary and task of a run contains one, by which it is recognised.

use std::fmt;

/// The kind of text that contains a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Text {
    /// A message to a session.
    Message,
    /// A typed prompt.
    Prompt,
    /// The summary of a compaction.
    Summary,
    /// The task of a subagent.
    Task,
}

impl Text {
    const ALL: [(Self, char); 4] = [
        (Self::Message, 'm'),
        (Self::Prompt, 'p'),
        (Self::Summary, 's'),
        (Self::Task, 't'),
    ];

    fn sign(self) -> char {
        Self::ALL
            .iter()
            .find(|(text, _)| *text == self)
            .map_or('?', |(_, sign)| *sign)
    }

    fn of(sign: char) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, known)| *known == sign)
            .map(|(text, _)| *text)
    }
}

/// The start of every token, unlikely to occur elsewhere in a request.
const BEGIN: &str = "TOK";
/// The end of every token, so that no token is a prefix of another.
const END: char = 'E';

/// The token of one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// The kind of text.
    pub text: Text,
    /// The session to whose conversation it belongs.
    pub seat: usize,
    /// Its number among the tokens of that session and kind, from 1.
    pub number: usize,
}

impl Token {
    /// Returns the tokens of a text in order, each with its position.
    pub fn find_all(text: &str) -> Vec<(usize, Self)> {
        let places = text.match_indices(BEGIN);
        places
            .filter_map(|(place, _)| Some((place, Self::read(&text[place + BEGIN.len()..])?)))
            .collect()
    }

    fn read(text: &str) -> Option<Self> {
        let sign = text.chars().next()?;
        let (numbers, _) = text[sign.len_utf8()..].split_once(END)?;
        let (seat, number) = numbers.split_once('n')?;
        Some(Self {
            text: Text::of(sign)?,
            seat: seat.parse().ok()?,
            number: number.parse().ok()?,
        })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{BEGIN}{}{}n{}{END}",
            self.text.sign(),
            self.seat,
            self.number
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_wherever_it_stands_and_nothing_else_is() {
        let one = Token {
            text: Text::Message,
            seat: 1,
            number: 12,
        };
        let other = Token {
            text: Text::Prompt,
            seat: 0,
            number: 3,
        };
        let text = format!("> {one}: TOKEN, TOKm1n1 and \"{other}\" TOKx1n1E TOKm1n1xE é");
        let found: Vec<_> = Token::find_all(&text)
            .into_iter()
            .map(|(_, token)| token)
            .collect();
        assert_eq!(found, [one, other]);
        assert_eq!(one.to_string(), "TOKm1n12E");
    }
}
