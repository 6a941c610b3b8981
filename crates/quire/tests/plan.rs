//! `quire plan` from outside: the contract's figures, in both forms, and what it says of settings that do not fit.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

use std::process::{Command, Output};

use serde_json::Value;

/// Runs it without the settings of whoever runs the tests.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quire"));
    command.env_clear().arg("plan").args(arguments).envs(variables.iter().copied());
    command.output().unwrap()
}

fn plan(arguments: &[&str]) -> String {
    let output = run(arguments, &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stderr, b"");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&plan(&[&["--json"], arguments].concat())).unwrap()
}

/// The cells of the line that begins so.
fn cells<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name));
    assert!(line.is_some(), "no {name} in\n{text}");
    line.unwrap().split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn the_contracts_plan_is_the_default_and_shows_the_contracts_figures() {
    let text = plan(&[]);
    let same = plan(&["--creates-per-day", "10M", "--mean-body", "10KB", "--retention", "45d"]);
    assert_eq!(text, same);
    for (name, expected) in [
        ("new pastes a day", ["10,000,000", "100,000,000"]),
        ("creates, on average", ["115.7/s", "1157/s"]),
        ("creates, at peak (3x)", ["347.2/s", "3472/s"]),
        ("bodies a day", ["100 GB", "1 TB"]),
        ("bodies, on average", ["1.16 MB/s", "11.6 MB/s"]),
        ("bodies, at peak (3x)", ["3.47 MB/s", "34.7 MB/s"]),
        ("live pastes", ["450,000,000", "4,500,000,000"]),
        ("live bodies", ["4.5 TB", "45 TB"]),
        ("live rows, 300 bytes each", ["135 GB", "1.35 TB"]),
        ("ids minted in ten years", ["3.65e10", "3.65e11"]),
        ("8 characters: 2.18e14 ids", ["3.05e6", "3.05e8"]),
        ("10 characters: 8.39e17 ids", ["794", "79400"]),
        ("12 characters (used): 3.23e21 ids", ["0.206", "20.6"]),
        ("16 characters: 4.77e28 ids", ["1.4e-8", "1.4e-6"]),
        ("source_creates", ["1/s", "10"]),
        ("service_bytes", ["10 MB/s", "20 MB"]),
    ] {
        assert_eq!(cells(&text, name), expected, "{name}");
    }
    for (name, expected) in [
        ("one source", ["8.64 GB", "86.4 GB", "535 days"]),
        ("everybody together", ["864 GB", "30.2 TB", "5.31 days"]),
        ("everybody, limiter outage (x1.25)", ["1.08 TB", "37.8 TB", "4.25 days"]),
    ] {
        assert_eq!(cells(&text, name), expected, "{name}");
    }
    assert!(text.contains("strangers behind one NAT share one budget"), "{text}");
    assert!(text.contains("100 addresses can, each within its own budget, take all of it"), "{text}");
    assert!(text.contains("a flushed or restarted limiter store grants every burst again"), "{text}");
    assert!(!text.contains("Warnings"), "{text}");
}

#[test]
fn machines_get_exact_numbers() {
    let json = json(&["--fleet-size=4", "--free-disk=1000GB"]);
    let sizes = &json["plan"];
    assert_eq!(sizes["live_pastes"], 450_000_000_u64);
    assert_eq!(sizes["capacity_bytes"], 4_635_000_000_000_u64);
    assert_eq!(sizes["ids_in_ten_years"], 36_500_000_000_u64);
    assert_eq!(sizes["creates_per_second"], 115.740_740_741);
    let collisions = sizes["id_collisions_in_ten_years"]["12"].as_f64().unwrap();
    assert!((0.206..0.207).contains(&collisions), "{collisions}");
    assert_eq!(json["ten_times_the_plan"]["creates_per_day"], 100_000_000_u64);
    assert_eq!(json["budgets"]["source_bytes"]["rate_per_second"], 100_000);
    let worst = &json["worst_cases"];
    for (key, bytes, if_counts_only) in [
        ("source", 8_642_000_000_u64, 86_410_000_000_u64),
        ("service", 864_020_000_000, 30_240_100_000_000),
        ("outage", 1_080_025_000_000, 37_843_325_000_000),
        ("partial_outage", 1_674_038_750_000, 58_665_794_000_000),
        ("source_in_outage", 34_568_000_000, 345_640_000_000),
    ] {
        assert_eq!(worst[key]["body_bytes_per_day"], bytes, "{key}");
        assert_eq!(worst[key]["body_bytes_per_day_if_counts_only"], if_counts_only, "{key}");
    }
    assert_eq!(worst["service"]["fills_free_disk_after_seconds"], 98_958);
    assert_eq!(json["warnings"].as_array().unwrap().len(), 0);
}

#[test]
fn what_does_not_fit_the_plan_is_warned_of_and_is_no_failure() {
    let text = plan(&["--creates-per-day=100M", "--source-bytes=off"]);
    for expected in [
        "service_creates   350 a second is under the plan's peak of 3472",
        "service_bytes     10 MB a second is under the plan's peak of 34.7 MB",
        "source_bytes      is off: one source may store 86.4 GB a day",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let grown = ["--creates-per-day=100M", "--service-creates=3500,1000", "--service-bytes=100MB,200MB"];
    assert_eq!(json(&grown)["warnings"], Value::Array(Vec::new()));
}

#[test]
fn nothing_bounded_is_said_to_be_so() {
    let off: Vec<String> = ["source-creates", "source-bytes", "service-creates", "service-bytes"]
        .map(|name| format!("--{name}=off"))
        .to_vec();
    let off: Vec<&str> = off.iter().map(String::as_str).collect();
    let text = plan(&off);
    assert_eq!(cells(&text, "everybody together"), ["no bound", "no bound", "no bound"]);
    assert_eq!(json(&off)["worst_cases"]["service"]["body_bytes_per_day"], Value::Null);
}

#[test]
fn budgets_come_from_the_servers_variables_too() {
    let output = run(&[], &[("QUIRE_SERVICE_BYTES", "20MB,40MB")]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(cells(&text, "service_bytes"), ["20 MB/s", "40 MB"]);
    assert_eq!(cells(&text, "everybody together")[0], "1.73 TB");
}

#[test]
fn a_wrong_value_names_its_flag() {
    for (argument, said) in [
        ("--creates-per-day=10MB", "--creates-per-day: '10MB' is not a count"),
        ("--creates-per-day=0", "--creates-per-day: '0' must be at least 1"),
        ("--mean-body=10K", "--mean-body: '10K' is not a size"),
        ("--mean-body=2MB", "--mean-body: '2MB' must be at least 1 byte and at most 1000000 bytes"),
        ("--retention=45", "--retention: '45' is not a duration"),
        ("--retention=400d", "--retention: '400d' must be longer than nothing and at most 365d"),
        ("--free-disk=all", "--free-disk: 'all' is not a size"),
        ("--source-bytes=1KB,1KB", "--source-bytes: '1KB,1KB': the burst must be at least 1000000 bytes"),
        ("--fleet-size=0", "--fleet-size: '0' is not a number of apps"),
    ] {
        let output = run(&[argument], &[]);
        assert_eq!(output.status.code(), Some(2), "{argument}");
        assert_eq!(output.stdout, b"");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn the_largest_plan_is_counted() {
    let text = plan(&["--creates-per-day=1000G", "--mean-body=1MB", "--retention=365d"]);
    // Ten times it is more than is counted.
    assert_eq!(cells(&text, "bodies a day"), ["1 EB", "-"]);
}
