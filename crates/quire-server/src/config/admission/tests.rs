use clap::Parser as _;
use proptest::prelude::*;

use super::*;

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    admission: AdmissionArgs,
}

fn parse(flags: &[&str]) -> AdmissionArgs {
    Command::try_parse_from([&["quire"], flags].concat()).unwrap().admission
}

fn check(flags: &[&str]) -> Result<Admission, ConfigError> {
    parse(flags).check()
}

fn budget(rate: u64, burst: u64) -> Option<Budget> {
    Budget::new(rate, burst).ok()
}

#[test]
fn without_flags_it_is_the_contracts_table() {
    let admission = check(&[]).unwrap();
    let expected = Budgets {
        creates: AdmissionBudgets {
            source: CreateBudgets { creates: budget(1, 10), bytes: budget(100_000, 2_000_000) },
            service: CreateBudgets { creates: budget(350, 100), bytes: budget(10_000_000, 20_000_000) },
        },
        source_reads: budget(50, 100),
        source_deletes: budget(5, 20),
    };
    assert_eq!(admission.budgets, expected);
    assert_eq!(admission.limits, LimitStore::Memory);
    assert_eq!(admission.fleet_size, None);
    assert_eq!(admission.trusted_proxies, TrustedProxies::default());
}

#[test]
fn every_flag_is_read() {
    let admission = check(&[
        "--source-creates=2,1",
        "--source-bytes=1,1MB",
        "--service-creates=3500,1K",
        "--service-bytes=off",
        "--source-reads=off",
        "--source-deletes=7,8",
        "--limits=rediss://me:p%40ss@cache.example:6380/2",
        "--fleet-size=4",
        "--trusted-proxy=10.0.0.0/8,fd00::/8",
        "--trusted-proxy=192.0.2.1",
    ])
    .unwrap();
    let creates = admission.budgets.creates;
    assert_eq!(creates.source, CreateBudgets { creates: budget(2, 1), bytes: budget(1, 1_000_000) });
    assert_eq!(creates.service, CreateBudgets { creates: budget(3_500, 1_000), bytes: None });
    assert_eq!(admission.budgets.source_reads, None);
    assert_eq!(admission.budgets.source_deletes, budget(7, 8));
    let LimitStore::Redis(url) = admission.limits else { panic!("redis was asked for") };
    assert_eq!(url.expose(), "rediss://me:p%40ss@cache.example:6380/2");
    assert_eq!(admission.fleet_size, NonZeroU32::new(4));
    let proxies = admission.trusted_proxies;
    for (address, trusted) in [
        ("10.1.2.3", true),
        ("fd12::1", true),
        ("192.0.2.1", true),
        ("192.0.2.2", false),
        ("11.0.0.1", false),
    ] {
        assert_eq!(proxies.contain(address.parse().unwrap()), trusted, "{address}");
    }
}

#[test]
fn a_wrong_value_is_an_error_that_names_its_flag() {
    let (one_app, fleet) = ("--fleet-size=1", "--fleet-size=2");
    for flags in [
        &["--source-creates=1"][..],
        &["--source-creates="],
        &["--source-creates=,"],
        &["--source-creates=1,0"],
        &["--source-creates=0,10"],
        &["--source-creates=1,10,2"],
        &["--source-creates=1, 10"],
        &["--source-creates=+1,10"],
        &["--source-creates=0.5,10"],
        &["--source-creates=1,1MB"],
        &["--source-creates=OFF"],
        &["--source-creates=4000000001,1"],
        &["--source-bytes=100KB,999999"],
        &["--source-bytes=100KB,999KB"],
        &["--source-bytes=0,2MB"],
        &["--source-bytes=100K,2M"],
        &["--source-bytes=100KB"],
        &["--source-bytes=1GB,18446744074GB"],
        &["--service-creates=350,0"],
        &["--service-bytes=10MB,1"],
        &["--source-reads=50,0"],
        &["--source-deletes=off,20"],
        &["--limits=memory"],
        &["--limits=", one_app],
        &["--limits=redis:", fleet],
        &["--limits=redis://", fleet],
        &["--limits=redis:///0", fleet],
        &["--limits=redis://:6379", fleet],
        &["--limits=redis://host:0", fleet],
        &["--limits=redis://host:66000", fleet],
        &["--limits=redis://host/db", fleet],
        &["--limits=redis://host/1/2", fleet],
        &["--limits=redis://host?protocol=resp3", fleet],
        &["--limits=rediss://host/#insecure", fleet],
        &["--limits=redis://ho st", fleet],
        &["--limits=postgres://host", fleet],
        &["--fleet-size=0"],
        &["--fleet-size=-1"],
        &["--fleet-size=many"],
        &["--fleet-size=2"],
        &["--trusted-proxy=10.0.0.0/33"],
        &["--trusted-proxy=proxy.example"],
        &["--trusted-proxy=10.0.0.0/8,"],
    ] {
        let error = check(flags).unwrap_err();
        let flag = flags[0].split('=').next().unwrap();
        assert_eq!(error.flag(), flag, "{flags:?}");
        assert!(error.to_string().starts_with(&format!("{flag}: ")), "{error}");
    }
}

#[test]
fn what_a_wrong_budget_lacks_is_said() {
    for (flag, said) in [
        ("--source-creates=5", "'5' is not RATE,BURST a second, as in 1,10, nor 'off'"),
        ("--source-creates=1,0", "'1,0': the burst must be at least 1"),
        ("--source-bytes=1KB,1KB", "'1KB,1KB': the burst must be at least 1000000 bytes"),
        ("--source-bytes=0,2MB", "'0,2MB': the rate must be at least 1 a second"),
        ("--trusted-proxy=10.0.0.1,x", "'x' is not a network"),
    ] {
        let error = check(&[flag]).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_fleet_needs_its_size_and_a_shared_store() {
    let redis = "--limits=redis://cache.example";
    assert_eq!(check(&[redis]).unwrap_err().flag(), "--fleet-size");
    assert!(check(&[redis, "--fleet-size=1"]).is_ok());
    assert!(check(&["--fleet-size=1"]).is_ok());
    let error = check(&["--fleet-size=4"]).unwrap_err();
    assert!(error.to_string().contains("memory:"), "{error}");
}

#[test]
fn urls_of_redis_may_leave_things_out() {
    for url in [
        "redis://localhost",
        "redis://localhost/",
        "redis://localhost:6379/15",
        "redis://[::1]:6379",
        "redis://:hunter2@10.0.0.1",
        "rediss://me:hunter2@cache.example:6380/0",
    ] {
        assert!(check(&[&format!("--limits={url}"), "--fleet-size=3"]).is_ok(), "{url}");
    }
}

#[test]
fn a_password_is_never_shown() {
    for (url, is_good) in [
        ("redis://me:hunter2@cache.example", true),
        ("redis://me:hunter2@cache.example:x", false),
        ("redis//me:hunter2@cache.example", false),
        ("hunter2", false),
    ] {
        let args = parse(&[&format!("--limits={url}"), "--fleet-size=3"]);
        let checked = args.check();
        assert_eq!(checked.is_ok(), is_good);
        let mut shown = format!("{args:?} {checked:?}");
        if let Err(error) = checked {
            shown.push_str(&error.to_string());
        }
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

proptest! {
    #[test]
    fn a_budget_is_the_two_numbers_that_were_written(rate in 1_u64..4_000, burst in 1_u64..4_000) {
        let admission = check(&[
            &format!("--source-creates={rate},{burst}"),
            &format!("--service-bytes={rate}KB,{burst}MB"),
        ]).unwrap();
        prop_assert_eq!(admission.budgets.creates.source.creates, budget(rate, burst));
        let bytes = budget(rate * 1_000, burst * 1_000_000);
        prop_assert_eq!(admission.budgets.creates.service.bytes, bytes);
    }

    #[test]
    fn nothing_panics(written in ".{0,20}", url in "redis://.{0,20}") {
        for flag in ["--source-creates", "--source-bytes", "--limits", "--trusted-proxy", "--fleet-size"] {
            let _ = check(&[&format!("{flag}={written}")]);
        }
        let _ = check(&[&format!("--limits={url}"), "--fleet-size=2"]);
    }
}
