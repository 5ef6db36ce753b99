//! The lines that `make up` prints before it serves.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use harness::project::root;

/// Returns what is printed for a coordinator that is about to listen there.
fn hint(listen: &str) -> Result<String> {
    let script = root().join("tests/setup/how-to-connect");
    let output = Command::new(script).args(["/bin/c3po", listen]).output().context("running how-to-connect")?;
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
        assert!(hint.contains(&format!("\"/bin/c3po-coordinator\" invite --listen {listen}\n")), "{hint}");
        assert!(!hint.contains("http://"), "nobody is served without TLS there: {hint}");
    }
    Ok(())
}
