//! Screens as an animated picture, which a page displays without a script.

use std::fmt::Write as _;
use std::time::Duration;

use super::Frame;

/// The size of one character, in the picture's units.
const WIDTH: f64 = 7.3;
const HEIGHT: f64 = 15.0;
/// The title bar of a window, and the space around it.
const BAR: f64 = 24.0;
const SPACE: f64 = 8.0;

const STYLE: &str = "text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#e6edf3;white-space:pre}\
    .title{font-family:system-ui,sans-serif;fill:#9da7b3}.window{fill:#0d1117;stroke:#30363d}.typed{fill:#79c0ff}\
    .done{fill:#7ee787}.dim{fill:#8b949e}";

/// Returns the picture of two windows, one above the other. It restarts after the rest.
pub(super) fn of(
    titles: &[&str; 2],
    (columns, rows): (usize, usize),
    frames: &[Frame],
    rest: Duration,
) -> String {
    let (columns, rows) = (columns as f64, rows as f64);
    let (width, window) = (columns * WIDTH + 4.0 * SPACE, BAR + rows * HEIGHT + SPACE);
    let height = 2.0 * window + 3.0 * SPACE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\"><style>{STYLE}</style>"
    );
    for (number, title) in titles.iter().enumerate() {
        let top = SPACE + number as f64 * (window + SPACE);
        let inner = width - 2.0 * SPACE;
        let _ = write!(
            svg,
            "<rect class=\"window\" x=\"{SPACE}\" y=\"{top}\" width=\"{inner:.0}\" height=\"{window:.0}\" rx=\"6\"/>"
        );
        let _ = write!(
            svg,
            "<text class=\"title\" x=\"{}\" y=\"{}\">{title}</text>",
            2.0 * SPACE,
            top + 17.0
        );
        let mut shown: Vec<(Duration, &str)> = Vec::new();
        for frame in frames {
            if shown
                .last()
                .is_none_or(|(_, screen)| *screen != frame.screens[number])
            {
                shown.push((frame.at, &frame.screens[number]));
            }
        }
        let end = frames.last().map_or(rest, |frame| frame.at + rest);
        for (place, (from, screen)) in shown.iter().enumerate() {
            let until = shown.get(place + 1).map_or(end, |(at, _)| *at);
            svg += &one(screen, top + BAR, *from, until, end);
        }
    }
    svg += "</svg>\n";
    svg
}

/// Returns one screen, which is visible during a part of the whole time.
fn one(screen: &str, top: f64, from: Duration, until: Duration, end: Duration) -> String {
    let part = |at: Duration| at.as_secs_f64() / end.as_secs_f64();
    let (first, last) = (part(from), part(until).min(1.0));
    let mut svg = format!(
        "<g visibility=\"hidden\"><animate attributeName=\"visibility\" calcMode=\"discrete\" dur=\"{:.2}s\" repeatCount=\"indefinite\" values=\"hidden;visible;hidden\" keyTimes=\"0;{first:.4};{last:.4}\"/>",
        end.as_secs_f64()
    );
    for (row, line) in screen
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let y = top + (row as f64 + 0.8) * HEIGHT;
        let class = class(line);
        let _ = write!(
            svg,
            "<text{class} x=\"{}\" y=\"{y:.0}\">{}</text>",
            2.0 * SPACE,
            escaped(line.trim_end())
        );
    }
    svg += "</g>";
    svg
}

/// Returns the colour of a line, by the client's own marks.
fn class(line: &str) -> &'static str {
    match line.trim_start().chars().next() {
        Some('❯') => " class=\"typed\"",
        Some('●') => " class=\"done\"",
        Some('─' | '⏵' | '⏸' | '⎿') => " class=\"dim\"",
        _ => "",
    }
}

fn escaped(line: &str) -> String {
    line.replace('&', "&amp;").replace('<', "&lt;")
}
