//! The lines that `make` prints before a build and before it starts a coordinator.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use harness::project::root;

/// Returns the hint for a coordinator that will listen at this address.
fn hint(listen: &str) -> Result<String> {
    let script = root().join("tests/setup/how-to-connect");
    let output = Command::new(script)
        .args(["/bin/c3po", listen])
        .output()
        .context("running how-to-connect")?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn on_this_machine_it_names_the_address_to_install_for() -> Result<()> {
    assert!(hint("127.0.0.1:8420")?.contains("make install && c3po install\n"));
    assert!(hint("localhost:8421")?.contains("c3po install --coordinator http://localhost:8421\n"));
    Ok(())
}

#[test]
fn on_the_network_it_names_the_command_that_prints_the_join_line() -> Result<()> {
    for listen in ["0.0.0.0:8420", "192.168.1.7:8420", "nas:8420", "[::]:8420"] {
        let hint = hint(listen)?;
        assert!(
            hint.contains(&format!(
                "\"/bin/c3po-coordinator\" invite --listen {listen}\n"
            )),
            "{hint}"
        );
        assert!(
            !hint.contains("http://"),
            "nobody is served without TLS there: {hint}"
        );
    }
    Ok(())
}

#[test]
fn after_an_installation_no_line_has_a_code_among_its_arguments() -> Result<()> {
    let output = Command::new(root().join("tests/setup/how-to-install"))
        .arg("/bin")
        .output()?;
    let printed = String::from_utf8(output.stdout)?;
    assert!(
        printed.contains("c3po join https://nas:8420\n"),
        "{printed}"
    );
    Ok(())
}

/// Returns the hint of `tests/setup/rust` if only these programs are installed besides the system's. Each prints a line.
fn without_rust(programs: &[(&str, &str)]) -> Result<String> {
    let path = tempfile::tempdir()?;
    for system in ["dirname", "sed", "cut"] {
        let found = ["/usr/bin", "/bin"].map(|folder| std::path::Path::new(folder).join(system));
        symlink(
            found.iter().find(|path| path.exists()).context(system)?,
            path.path().join(system),
        )?;
    }
    for (program, line) in programs {
        let file = path.path().join(program);
        fs::write(&file, format!("#!/bin/sh\necho '{line}'\n"))?;
        fs::set_permissions(&file, Permissions::from_mode(0o755))?;
    }
    let output = Command::new("/bin/sh")
        .arg(root().join("tests/setup/rust"))
        .env("PATH", path.path())
        .output()?;
    ensure!(
        output.status.success() == output.stderr.is_empty(),
        "{output:?}"
    );
    Ok(String::from_utf8(output.stderr)?)
}

#[test]
fn without_rust_or_with_an_old_one_a_sentence_names_the_version_and_where_it_is() -> Result<()> {
    let none = without_rust(&[])?;
    assert!(
        none.contains("needs Rust 1.")
            && none.contains("https://rustup.rs")
            && none.lines().count() == 1,
        "{none}"
    );
    let old = without_rust(&[
        ("rustc", "rustc 1.63.0 (4b91a6ea7 2022-08-08)"),
        ("cargo", "cargo 1.63.0"),
    ])?;
    assert!(
        old.contains("this is 1.63.0: run `rustup update`") && old.lines().count() == 1,
        "{old}"
    );
    assert_eq!(
        without_rust(&[
            ("rustc", "rustc 1.95.0 (59807616e 2026-04-14)"),
            ("cargo", "cargo 1.95.0")
        ])?,
        ""
    );
    Ok(())
}
