//! Two builds in one run: measured in turns, so that other load of the machine affects both.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use harness::process::PROGRAMS;

use super::Options;
use super::report::Row;

/// The values of a figure in all rounds: of this build, and of the other.
type Values = BTreeMap<usize, [Vec<f64>; 2]>;

/// Measures this build and the one in that folder, and prints the medians of every figure and their ratio.
pub(super) fn run(options: &Options, other: &Path) -> Result<()> {
    let other = other
        .canonicalize()
        .with_context(|| other.display().to_string())?;
    ensure!(
        other.join("c3po-coordinator").is_file(),
        "there is no c3po-coordinator in {}",
        other.display()
    );
    let (mut names, mut values) = (Vec::<(String, String)>::new(), Values::new());
    for round in 0..options.rounds.max(1) {
        // The build that comes first in a round comes second in the next.
        for build in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let name = ["this build", "the other build"][build];
            crate::say(&format!(
                "round {} of {}: {name}",
                round + 1,
                options.rounds
            ));
            let folder = (build == 1).then_some(&other);
            for row in measure(options, folder).context(name)? {
                let name = (row.what, row.unit);
                let place = names
                    .iter()
                    .position(|known| *known == name)
                    .unwrap_or_else(|| {
                        names.push(name);
                        names.len() - 1
                    });
                values.entry(place).or_default()[build].push(row.value);
            }
        }
    }
    println!(
        "{:<60} {:>12} {:>12} {:>7}  in each round",
        "figure, median", "this build", "the other", "ratio"
    );
    for (place, (what, unit)) in names.iter().enumerate() {
        print(&format!("{what} ({unit})"), &values[&place]);
    }
    Ok(())
}

fn print(what: &str, [this, other]: &[Vec<f64>; 2]) {
    let text = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
    let (here, there) = (median(this), median(other));
    let ratio = here.zip(there).map(|(here, there)| here / there);
    let each: Vec<_> = this
        .iter()
        .zip(other)
        .map(|(here, there)| format!("{:.2}", here / there))
        .collect();
    println!(
        "{what:<60} {:>12} {:>12} {:>7}  {}",
        text(here),
        text(there),
        text(ratio),
        each.join(" ")
    );
}

fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Measures a build in a separate process: the build beside this program, or the one in that folder.
fn measure(options: &Options, folder: Option<&PathBuf>) -> Result<Vec<Row>> {
    let lab = folder
        .map(|folder| folder.join("lab"))
        .filter(|lab| lab.is_file());
    let mut command = Command::new(lab.map_or_else(std::env::current_exe, Ok)?);
    command.args(["bench", "--json"]);
    if options.quick {
        command.arg("--quick");
    }
    for section in options
        .sections
        .iter()
        .filter_map(ValueEnum::to_possible_value)
    {
        command.arg(section.get_name());
    }
    if let Some(folder) = folder {
        command.env(PROGRAMS, folder);
    }
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    // A missed goal does not prevent the comparison.
    serde_json::from_slice(&output.stdout).context("the figures could not be taken")
}
