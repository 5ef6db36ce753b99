//! The rules of ARCHITECTURE.md: dependencies between modules and packages, restricted APIs, the length of files.

mod api_reference;
mod circles;
mod code;
mod documents;
mod gone;
mod hints;
mod image;
mod modules;
mod packages;
mod prose;
mod text;
mod tree;

use anyhow::Result;

use harness::project::root;

use tree::{File, files};

/// Applies a rule for single files to every file, and reports all violations together.
fn check(rule: impl Fn(&File) -> Vec<String>) -> Result<()> {
    let breaches: Vec<_> = files(root())?.iter().flat_map(rule).collect();
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
    Ok(())
}

#[test]
fn no_file_is_longer_than_500_lines() -> Result<()> {
    check(text::too_long)
}

#[test]
fn every_file_states_its_purpose() -> Result<()> {
    check(text::without_purpose)
}

#[test]
fn the_environment_is_read_only_in_the_two_configs() -> Result<()> {
    check(text::environment_outside_config)
}

#[test]
fn only_the_store_knows_its_databases() -> Result<()> {
    check(text::database_outside_store)
}

#[test]
fn every_task_has_an_owner() -> Result<()> {
    check(text::unowned_task)
}

#[test]
fn no_test_is_ignored() -> Result<()> {
    check(text::ignored_test)
}

#[test]
fn the_project_stands_on_its_own() -> Result<()> {
    check(text::foreign_path)
}

#[test]
fn nothing_is_left_for_later() -> Result<()> {
    check(text::left_for_later)
}

#[test]
fn removed_words_stay_removed() -> Result<()> {
    check(gone::came_back)
}

#[test]
fn the_build_context_of_the_image_holds_every_file_that_the_build_reads() -> Result<()> {
    let context = image::context(root())?;
    assert_eq!(
        image::unreadable_workspace(&files(root())?, &context)?,
        None,
        "see .dockerignore"
    );
    check(|file| image::outside_context(file, &context))
}

#[test]
fn modules_depend_only_on_modules_below_them() -> Result<()> {
    check(modules::upward_arrows)
}

#[test]
fn modules_do_not_go_in_circles() -> Result<()> {
    let circles = modules::circles(&files(root())?);
    assert!(circles.is_empty(), "\n{}\n", circles.join("\n"));
    Ok(())
}

#[test]
fn files_do_not_go_in_circles() -> Result<()> {
    let files = files(root())?;
    let found = circles::circles(&files);
    assert!(found.is_empty(), "circles of files: {found:#?}");
    Ok(())
}

#[test]
fn packages_depend_only_on_packages_below_them() -> Result<()> {
    check(packages::forbidden_arrows)
}

#[test]
fn shared_knows_no_runtime() -> Result<()> {
    check(packages::runtime_in_shared)
}

#[test]
fn versions_stand_only_at_the_root() -> Result<()> {
    check(packages::version_outside_root)
}

#[test]
fn the_lock_file_of_the_fuzz_targets_knows_every_dependency() -> Result<()> {
    let absent = packages::absent_from_fuzz_lock(&files(root())?);
    assert!(absent.is_empty(), "\n{}\n", absent.join("\n"));
    Ok(())
}

#[test]
fn comments_name_things() -> Result<()> {
    let files = files(root())?;
    let breaches = [prose::over_budget(&files), prose::unnamed_subjects(&files)].concat();
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
    Ok(())
}

#[test]
fn sentences_of_documents_are_short() -> Result<()> {
    let breaches = prose::long_sentences(&files(root())?);
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
    Ok(())
}

#[test]
fn names_of_functions_have_a_subject() -> Result<()> {
    let breaches = prose::unnamed_functions(&files(root())?);
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
    Ok(())
}
