//! Reads the repository itself: what a reviewer should never have to say twice.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Longest Rust file, its tests included.
const FILE_LINES_MAX: usize = 600;
/// Longest part of a file before its tests.
const CODE_LINES_MAX: usize = 400;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every file below these folders that ends so, as (path from the root, text).
fn files(folders: &[&str], extension: &str) -> Vec<(String, String)> {
    let root = root();
    let mut waiting: Vec<PathBuf> = folders.iter().map(|folder| root.join(folder)).collect();
    let mut found = Vec::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|found| found == extension) {
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            found.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(!found.is_empty(), "nothing ends in {extension} below {folders:?}");
    found.sort();
    found
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

fn assert_none(wrong: &[String], rule: &str) {
    assert!(wrong.is_empty(), "{rule}:\n{}", wrong.join("\n"));
}

#[test]
fn rust_files_are_short() {
    let mut wrong = Vec::new();
    for (name, text) in files(&["crates"], "rs") {
        let lines = text.lines().count();
        let code = text.lines().take_while(|line| line.trim() != "#[cfg(test)]").count();
        let is_test = name.contains("/tests/") || name.ends_with("/tests.rs");
        if lines > FILE_LINES_MAX || (!is_test && code > CODE_LINES_MAX) {
            wrong.push(format!("{name}: {lines} lines, {code} before its tests"));
        }
    }
    assert_none(&wrong, "files are at most 600 lines, and 400 without their tests");
}

#[test]
fn nothing_is_left_undone() {
    // Written in two parts, so that this file does not find itself.
    let undone = [concat!("#[ig", "nore"), concat!("to", "do!("), concat!("unimple", "mented!(")];
    let mut wrong = Vec::new();
    for (name, text) in files(&["crates"], "rs") {
        for (number, line) in (1..).zip(text.lines()) {
            if undone.iter().any(|word| line.contains(word)) {
                wrong.push(format!("{name}:{number}: {}", line.trim()));
            }
        }
    }
    assert_none(&wrong, "a test that does not run and a function that does nothing are not finished");
}

#[test]
fn rust_files_say_what_they_are() {
    let headless = |(name, text): (String, String)| {
        let is_module_of_tests = name.ends_with("/tests.rs");
        (!text.starts_with("//!") && !is_module_of_tests).then_some(name)
    };
    let wrong: Vec<_> = files(&["crates"], "rs").into_iter().filter_map(headless).collect();
    assert_none(&wrong, "every module begins with what it is for");
}

#[test]
fn every_flag_is_in_the_readme() {
    let readme = read("README.md");
    let mut wrong = Vec::new();
    let mut flags = 0;
    for command in ["serve", "put", "get", "rm", "verify", "backup", "plan"] {
        let output = Command::new(env!("CARGO_BIN_EXE_quire")).args([command, "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        for line in help.lines().map(str::trim_start).filter(|line| line.starts_with("--")) {
            let flag = line.split([' ', '=']).next().unwrap();
            flags += 1;
            if !readme.contains(&format!("`{flag}")) {
                wrong.push(format!("quire {command} {flag}"));
            }
        }
    }
    assert!(flags > 15, "the help was not understood");
    assert_none(&wrong, "flags that README.md does not have");
}

#[test]
fn every_metric_is_in_the_operations_guide() {
    let guide = read("docs/operations.md");
    let crates = ["quire_core", "quire_server", "quire_testkit"];
    let mut wrong = BTreeSet::new();
    for (name, text) in files(&["crates"], "rs").into_iter().filter(|(name, _)| name.contains("/src/")) {
        // What stands between double quotes and could be the name of a metric.
        for quoted in text.split('"').skip(1).filter(|quoted| quoted.starts_with("quire_")) {
            let is_word =
                quoted.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            if is_word && !crates.contains(&quoted) && !guide.contains(&format!("`{quoted}")) {
                wrong.insert(format!("{name}: {quoted}"));
            }
        }
    }
    assert_none(&Vec::from_iter(wrong), "metrics that docs/operations.md does not have");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut documents = files(&["docs"], "md");
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        documents.push((name.to_owned(), read(name)));
    }
    let mut wrong = Vec::new();
    for (name, text) in documents {
        let folder = root().join(&name).parent().unwrap().to_owned();
        for rest in text.split("](").skip(1) {
            let target = rest.split([')', '#', ' ']).next().unwrap();
            let is_here = folder.join(target).canonicalize().is_ok_and(|path| path.starts_with(root()));
            if !target.is_empty() && !target.contains("://") && !is_here {
                wrong.push(format!("{name}: {target}"));
            }
        }
    }
    assert_none(&wrong, "links to nothing in this repository");
}

#[test]
fn the_contract_stands_alone() {
    let contract = read("docs/contract.md");
    let mut wrong = Vec::new();
    for (number, line) in (1..).zip(contract.lines()) {
        for rest in line.split("://").skip(1) {
            let host = rest.split(['/', '`', ' ', '"', ')', ';', '[']).next().unwrap();
            // A scheme alone, a placeholder in capitals, or a name that is reserved for examples.
            let is_placeholder = host.trim_matches('.').chars().all(|letter| letter.is_ascii_uppercase());
            if !is_placeholder && !host.ends_with(".example") {
                wrong.push(format!("{number}: {}", line.trim()));
            }
        }
        if line.contains("](") || line.contains("../") || line.contains("~/") {
            wrong.push(format!("{number}: {}", line.trim()));
        }
    }
    assert_none(&wrong, "docs/contract.md cites nothing outside itself");
}
