//! Tests of the files that only this user or root can have written.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::process::Command;

use super::*;

#[test]
fn a_file_that_others_can_write_or_replace_is_not_trusted() -> io::Result<()> {
    let place = tempfile::tempdir()?;
    let own = place.path().join("own");
    let file = own.join("policy.toml");
    fs::create_dir(&own)?;
    fs::write(&file, "rules")?;
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    let check = |of_file: u32, of_folder: u32, expected: &[&str]| {
        set(&file, of_file).expect("ours");
        set(&own, of_folder).expect("ours");
        match read_trusted(&file, 10) {
            Ok(bytes) => assert!(
                bytes == b"rules" && expected.is_empty(),
                "{of_file:o} {of_folder:o}"
            ),
            Err(error) => {
                let error = error.to_string();
                let is_named = |part: &&str| error.contains(part);
                assert!(
                    !expected.is_empty() && expected.iter().all(is_named),
                    "{error}"
                );
            }
        }
    };
    check(0o600, 0o700, &[]);
    check(0o644, 0o755, &[]);
    check(
        0o664,
        0o700,
        &[
            "policy.toml is writable by other users (mode 664)",
            "run `install -m 600 -o ",
        ],
    );
    check(
        0o666,
        0o755,
        &["policy.toml is writable", "then check its content"],
    );
    check(
        0o600,
        0o775,
        &["own is writable by other users (mode 775)", "chmod go-w"],
    );
    check(0o600, 0o777, &["own is writable", "chmod go-w"]);
    check(
        0o600,
        0o1777,
        &["the folder", "(mode 1777)", "move the file to a folder"],
    );
    set(&own, 0o755)?;
    // Only root can give a file away.
    if chown(&file, Some(12_345), None).is_ok() {
        let error = read_trusted(&file, 10).expect_err("foreign").to_string();
        assert!(
            error.contains("belongs to uid 12345") && error.contains("`install -m 600"),
            "{error}"
        );
    }
    Ok(())
}

#[test]
fn a_link_is_trusted_if_others_can_replace_neither_it_nor_its_file() -> io::Result<()> {
    let place = tempfile::tempdir()?;
    let (own, shared) = (place.path().join("own"), place.path().join("shared"));
    for folder in [&own, &shared] {
        fs::create_dir(folder)?;
        fs::write(folder.join("file"), "rules")?;
    }
    fs::set_permissions(&shared, Permissions::from_mode(0o777))?;
    let check = |link: &Path, file: &Path, is_trusted: bool| {
        symlink(file, link).expect("made");
        let found = read_trusted(link, 10);
        assert_eq!(found.is_ok(), is_trusted, "{found:?}");
    };
    check(&place.path().join("link"), &own.join("file"), true);
    check(&shared.join("link"), &own.join("file"), false);
    check(&own.join("link"), &shared.join("file"), false);
    let missing = read_trusted(&own.join("none"), 10).expect_err("missing");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    Ok(())
}

/// Reads `live/key.pem`, a link to `archive/key.pem`, for that holder and with the modes of `archive` and its file. Checks
/// that the error contains a part, or that there is none.
fn check_required(
    place: &Path,
    (of_folder, of_file): (u32, u32),
    holder: u32,
    expected: Option<&str>,
) {
    let set = |path: &str, mode| {
        fs::set_permissions(place.join(path), Permissions::from_mode(mode)).expect("ours");
    };
    set("archive", of_folder);
    set("archive/key.pem", of_file);
    let found = read_required(&place.join("live/key.pem"), 10, holder);
    let found = found.map_err(|error| error.to_string());
    let context = format!("{of_folder:o} {of_file:o} {holder}: {found:?}");
    match expected {
        None => assert_eq!(found.as_deref(), Ok(&b"key"[..]), "{context}"),
        Some(part) => assert!(found.is_err_and(|error| error.contains(part)), "{context}"),
    }
}

/// Makes the files that `check_required` reads.
fn required() -> io::Result<tempfile::TempDir> {
    let place = tempfile::tempdir()?;
    for folder in ["archive", "live"] {
        fs::create_dir(place.path().join(folder))?;
    }
    fs::write(place.path().join("archive/key.pem"), "key")?;
    symlink("../archive/key.pem", place.path().join("live/key.pem"))?;
    Ok(place)
}

#[test]
fn a_required_file_is_one_that_others_can_neither_write_nor_replace() -> io::Result<()> {
    let place = required()?;
    let check = |modes, expected| {
        check_required(place.path(), modes, geteuid().as_raw(), expected);
    };
    check((0o700, 0o600), None);
    check((0o755, 0o644), None);
    check((0o710, 0o640), None);
    check((0o1777, 0o600), None);
    let writable = "archive is writable by other users";
    check((0o777, 0o600), Some(writable));
    check((0o775, 0o600), Some(writable));
    check((0o755, 0o666), Some("key.pem is writable by other users"));
    Ok(())
}

#[test]
fn a_required_file_may_be_its_holders_but_no_one_elses() -> io::Result<()> {
    let (place, user) = (required()?, geteuid().as_raw());
    let check = |modes, holder, expected| {
        check_required(place.path(), modes, holder, expected);
    };
    let [archive, file, link] =
        ["archive", "archive/key.pem", "live/key.pem"].map(|path| place.path().join(path));
    // Only root can give a file away.
    if chown(&file, Some(12_345), None).is_err() {
        return Ok(());
    }
    let foreign = Some("key.pem belongs to uid 12345");
    check((0o755, 0o600), user, foreign);
    check((0o755, 0o640), 12_345, None);
    check((0o755, 0o660), 12_345, Some("key.pem is writable"));
    check((0o1777, 0o600), 12_345, foreign);
    chown(&archive, Some(12_345), Some(12_345))?;
    lchown(&link, Some(12_345), None)?;
    check((0o775, 0o600), 12_345, None);
    check((0o777, 0o600), 12_345, Some("archive is writable"));
    chown(&file, Some(user), None)?;
    let linked = Some("live/key.pem belongs to uid 12345");
    check((0o755, 0o600), user, linked);
    lchown(&link, Some(user), None)?;
    check((0o755, 0o600), user, Some("archive belongs to uid 12345"));
    Ok(())
}

#[test]
fn every_folder_above_a_file_is_checked() -> io::Result<()> {
    let place = tempfile::tempdir()?;
    let (above, own) = (place.path().join("above"), place.path().join("above/own"));
    let file = own.join("policy.toml");
    fs::create_dir_all(&own)?;
    fs::write(&file, "rules")?;
    let check = |mode: u32, expected: Option<&str>| {
        fs::set_permissions(&above, Permissions::from_mode(mode)).expect("ours");
        let error = read_trusted(&file, 10).err().map(|error| error.to_string());
        let is_so = error.as_deref().map(|error| error.contains("above"));
        assert_eq!(is_so, expected.map(|_| true), "{mode:o}: {error:?}");
        assert!(error.unwrap_or_default().contains(expected.unwrap_or("")));
    };
    check(0o755, None);
    check(0o777, Some("above is writable by other users (mode 777)"));
    check(0o2775, Some("above is writable by other users (mode 2775)"));
    check(0o1777, None);
    let none = read_trusted(&above.join("own/none"), 10).expect_err("missing");
    assert_eq!(none.kind(), ErrorKind::NotFound);
    fs::set_permissions(&above, Permissions::from_mode(0o755))?;
    // Only root can give something away.
    let link = above.join("link");
    symlink(&own, &link)?;
    let linked = link.join("policy.toml");
    assert!(read_trusted(&linked, 10).is_ok());
    if lchown(&link, Some(12_345), None).is_ok() {
        let error = read_trusted(&linked, 10).expect_err("foreign").to_string();
        assert!(
            error.contains("link belongs to uid 12345") && error.contains("`chown -h"),
            "{error}"
        );
        chown(&own, Some(12_345), None)?;
        let error = read_trusted(&file, 10).expect_err("foreign").to_string();
        assert!(error.contains("own belongs to uid 12345"), "{error}");
    }
    Ok(())
}

#[test]
fn a_file_that_others_could_make_or_replace_has_a_bad_place() -> io::Result<()> {
    let place = tempfile::tempdir()?;
    let folder = place.path().join("folder");
    fs::create_dir(&folder)?;
    for path in [folder.join("c3po.db"), folder.join("none/c3po.db")] {
        for (mode, is_good) in [(0o755, true), (0o777, false), (0o2775, false)] {
            fs::set_permissions(&folder, Permissions::from_mode(mode))?;
            assert_eq!(check_place(&path).is_ok(), is_good, "{path:?} {mode:o}");
        }
    }
    fs::set_permissions(&folder, Permissions::from_mode(0o1777))?;
    assert!(check_place(&folder.join("c3po.db")).is_err());
    Ok(())
}

#[test]
fn a_trusted_file_is_a_regular_one() -> io::Result<()> {
    let place = tempfile::tempdir()?;
    let (round, folder) = (place.path().join("round"), place.path().join("folder"));
    symlink(&round, &round)?;
    assert!(read_trusted(&round, 10).is_err(), "a link to itself");
    fs::create_dir(&folder)?;
    let error = read_trusted(&folder, 10).expect_err("a folder");
    assert_eq!(error.to_string(), "this is not a regular file");
    Ok(())
}

/// Runs the command that an error contains, as it is pasted, in a shell whose new files are for everyone. Checks that the
/// advice about the content comes after it.
fn paste(error: &io::Error) -> io::Result<()> {
    let error = error.to_string();
    let parts: Vec<&str> = error.split('`').collect();
    let &[before, command, after] = parts.as_slice() else {
        panic!("{error}");
    };
    assert!(
        !before.contains("check") && after.contains("then check"),
        "{error}"
    );
    let shell = Command::new("sh")
        .args(["-c", &format!("umask 000; {command}")])
        .output()?;
    assert!(shell.status.success(), "{command}: {shell:?}");
    Ok(())
}

#[test]
fn after_the_printed_command_no_one_else_writes_to_the_file() -> io::Result<()> {
    let place = tempfile::tempdir()?;
    let own = place.path().join("ann's own $(folder)");
    let file = own.join("policy.toml");
    fs::create_dir(&own)?;
    fs::write(&file, "rules")?;
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    let read = || read_trusted(&file, 10);

    set(&own, 0o777)?;
    paste(&read().expect_err("an open folder"))?;
    assert!(read().is_ok());

    set(&file, 0o666)?;
    let mut open = OpenOptions::new().append(true).open(&file)?;
    paste(&read().expect_err("an open file"))?;
    open.write_all(b"more")?;
    assert_eq!(read()?, b"rules", "it is another file");
    let mode = fs::metadata(&file)?.mode();
    assert_eq!((mode & 0o777, fs::read_dir(&own)?.count()), (0o600, 1));

    // Only root can give something away.
    if chown(&file, Some(12_345), None).is_ok() {
        let mut open = OpenOptions::new().append(true).open(&file)?;
        paste(&read().expect_err("a foreign file"))?;
        open.write_all(b"more")?;
        assert_eq!(read()?, b"rules", "it is another file");
        set(&own, 0o775)?;
        chown(&own, Some(12_345), None)?;
        paste(&read().expect_err("a foreign folder"))?;
        assert!(read().is_ok());
        let link = own.join("a link");
        symlink(&file, &link)?;
        lchown(&link, Some(12_345), None)?;
        paste(&read_trusted(&link, 10).expect_err("a foreign link"))?;
        assert!(read_trusted(&link, 10).is_ok());
    }
    Ok(())
}

#[test]
fn no_command_is_printed_for_a_place_where_others_create_files() -> io::Result<()> {
    let place = required()?;
    check_required(
        place.path(),
        (0o1777, 0o666),
        geteuid().as_raw(),
        Some("(mode 666): move the file to a folder that only its owner can write"),
    );
    Ok(())
}
