//! Texts that are found again wherever they stand: each message, prompt, summary and task of a run holds one.

use std::fmt;

/// What a token stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Text {
    /// A message that was sent to a session.
    Message,
    /// A prompt that was typed.
    Prompt,
    /// The summary that a compaction left.
    Summary,
    /// The task of a subagent.
    Task,
}

impl Text {
    const ALL: [(Self, char); 4] = [(Self::Message, 'm'), (Self::Prompt, 'p'), (Self::Summary, 's'), (Self::Task, 't')];

    fn sign(self) -> char {
        Self::ALL.iter().find(|(text, _)| *text == self).map_or('?', |(_, sign)| *sign)
    }

    fn of(sign: char) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == sign).map(|(text, _)| *text)
    }
}

/// What begins every token. Nothing else in a request is likely to.
const BEGIN: &str = "TOK";
/// What ends it, so that none is the beginning of another.
const END: char = 'E';

/// One text of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// What it stands in.
    pub text: Text,
    /// Which session's conversation that belongs to.
    pub seat: usize,
    /// Which of that session and kind, from 1.
    pub number: usize,
}

impl Token {
    /// Returns the tokens of a text in order, each with its place.
    pub fn find_all(text: &str) -> Vec<(usize, Self)> {
        let places = text.match_indices(BEGIN);
        places.filter_map(|(place, _)| Some((place, Self::read(&text[place + BEGIN.len()..])?))).collect()
    }

    fn read(text: &str) -> Option<Self> {
        let sign = text.chars().next()?;
        let (numbers, _) = text[sign.len_utf8()..].split_once(END)?;
        let (seat, number) = numbers.split_once('n')?;
        Some(Self { text: Text::of(sign)?, seat: seat.parse().ok()?, number: number.parse().ok()? })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BEGIN}{}{}n{}{END}", self.text.sign(), self.seat, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_wherever_it_stands_and_nothing_else_is() {
        let one = Token { text: Text::Message, seat: 1, number: 12 };
        let other = Token { text: Text::Prompt, seat: 0, number: 3 };
        let text = format!("> {one}: TOKEN, TOKm1n1 and \"{other}\" TOKx1n1E TOKm1n1xE é");
        let found: Vec<_> = Token::find_all(&text).into_iter().map(|(_, token)| token).collect();
        assert_eq!(found, [one, other]);
        assert_eq!(one.to_string(), "TOKm1n12E");
    }
}
