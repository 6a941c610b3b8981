use std::path::PathBuf;

use clap::Parser as _;
use proptest::prelude::*;

use quire_core::admission::{AdmissionBudgets, Budget, CreateBudgets};

use super::{
    stores::{BodyStore, RowStore},
    *,
};

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    serve: ServeArgs,
}

fn parse(flags: &[&str]) -> ServeArgs {
    Command::try_parse_from([&["quire"], flags].concat()).unwrap().serve
}

fn check(flags: &[&str]) -> Result<Config, ConfigError> {
    Config::try_from(parse(flags))
}

fn budget(rate: u64, burst: u64) -> Option<Budget> {
    Budget::new(rate, burst).ok()
}

#[test]
fn without_flags_it_is_the_contracts_defaults() {
    let expected = Config {
        listen: "127.0.0.1:8080".parse().unwrap(),
        admin_listen: "127.0.0.1:8081".parse().unwrap(),
        public_url: None,
        stores: Stores {
            data: PathBuf::from("./quire-data"),
            rows: RowStore::Sqlite(PathBuf::from("./quire-data/rows.db")),
            bodies: BodyStore::Local(PathBuf::from("./quire-data/bodies")),
        },
        disk_reserve: DiskReserve::Percent(5),
        commit_deadline: Duration::from_mins(1),
        budgets: Budgets {
            creates: AdmissionBudgets {
                source: CreateBudgets { creates: budget(1, 10), bytes: budget(100_000, 2_000_000) },
                service: CreateBudgets { creates: budget(350, 100), bytes: budget(10_000_000, 20_000_000) },
            },
            source_reads: budget(50, 100),
            source_deletes: budget(5, 20),
        },
        limits: LimitStore::Memory,
        fleet_size: None,
        trusted_proxies: TrustedProxies::default(),
        source_in_flight: Some(InFlight { requests_max: 64, creates_max: 16 }),
        allow_origins: Vec::new(),
        cache_max_age: Duration::from_secs(30),
        cache_bytes: 64_000_000,
        drain_wait: Duration::ZERO,
        log: LogFormat::Text,
        log_level: LogLevel::Info,
    };
    assert_eq!(check(&[]).unwrap(), expected);
}

#[test]
fn every_flag_is_read() {
    let config = check(&[
        "--listen=[::]:80",
        "--admin-listen=10.0.0.1:9000",
        "--public-url=https://example.org/paste/",
        "--data=/var/lib/quire",
        "--rows=sqlite:/fast/rows.db",
        "--bodies=local:/big/bodies",
        "--allow-origin=https://a.example,https://b.example",
        "--allow-origin=http://localhost:3000",
        "--disk-reserve=20GB",
        "--source-in-flight=off",
        "--source-creates=off",
        "--limits=redis://cache.example",
        "--fleet-size=4",
        "--trusted-proxy=10.0.0.0/8",
        "--cache-max-age=0s",
        "--cache-bytes=0",
        "--commit-deadline=1500ms",
        "--drain-wait=5s",
        "--log=json",
        "--log-level=debug",
    ])
    .unwrap();
    assert_eq!(config.listen, "[::]:80".parse().unwrap());
    assert_eq!(config.admin_listen, "10.0.0.1:9000".parse().unwrap());
    assert_eq!(config.public_url.unwrap().as_str(), "https://example.org/paste");
    assert_eq!(config.stores.data, PathBuf::from("/var/lib/quire"));
    assert_eq!(config.stores.rows, RowStore::Sqlite(PathBuf::from("/fast/rows.db")));
    assert_eq!(config.stores.bodies, BodyStore::Local(PathBuf::from("/big/bodies")));
    let origins: Vec<_> = config.allow_origins.iter().map(Origin::as_str).collect();
    assert_eq!(origins, ["https://a.example", "https://b.example", "http://localhost:3000"]);
    assert_eq!(config.disk_reserve, DiskReserve::Bytes(20_000_000_000));
    assert_eq!(config.source_in_flight, None);
    assert_eq!(config.budgets.creates.source.creates, None);
    assert!(matches!(config.limits, LimitStore::Redis(_)));
    assert_eq!(config.fleet_size, NonZeroU32::new(4));
    assert!(config.trusted_proxies.contain("10.1.1.1".parse().unwrap()));
    assert_eq!(config.cache_max_age, Duration::ZERO);
    assert_eq!(config.cache_bytes, 0);
    assert_eq!(config.commit_deadline, Duration::from_millis(1_500));
    assert_eq!(config.drain_wait, Duration::from_secs(5));
    assert_eq!(
        (config.log, tracing::Level::from(config.log_level)),
        (LogFormat::Json, tracing::Level::DEBUG)
    );
}

#[test]
fn a_wrong_value_is_an_error_that_names_its_flag() {
    for flags in [
        &["--listen=localhost:8080"][..],
        &["--listen=127.0.0.1"],
        &["--admin-listen="],
        &["--admin-listen=127.0.0.1:8080"],
        &["--public-url=paste.example"],
        &["--public-url="],
        &["--rows=/rows.db"],
        &["--bodies=/bodies"],
        &["--allow-origin=*"],
        &["--allow-origin=https://a.example,"],
        &["--disk-reserve=100%"],
        &["--disk-reserve=5MiB"],
        &["--source-creates=1,0"],
        &["--source-bytes=100KB,1KB"],
        &["--limits=file:x"],
        &["--fleet-size=2"],
        &["--trusted-proxy=x"],
        &["--source-in-flight=64"],
        &["--source-in-flight=64,0"],
        &["--source-in-flight=16,64"],
        &["--source-in-flight=64,16,4"],
        &["--cache-max-age=1500ms"],
        &["--cache-max-age=30"],
        &["--cache-bytes=64M"],
        &["--commit-deadline=0s"],
        &["--commit-deadline=3h"],
        &["--drain-wait=soon"],
    ] {
        let error = check(flags).unwrap_err();
        let flag = flags[0].split('=').next().unwrap();
        assert_eq!(error.flag(), flag);
        assert!(error.to_string().starts_with(&format!("{flag}: ")), "{error}");
    }
}

#[test]
fn two_listeners_may_both_let_the_system_choose() {
    assert!(check(&["--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"]).is_ok());
}

#[test]
fn a_password_in_a_url_is_never_shown() {
    for flag in
        ["--public-url=https://me:hunter2@x", "--allow-origin=https://me:hunter2@x", "--rows=pg:hunter2"]
    {
        let args = parse(&[flag]);
        let error = args.check().unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
    let args = parse(&["--rows=postgres://me:hunter2@x", "--bodies=s3://hunter2"]);
    assert!(!format!("{args:?}").contains("hunter2"));
}

#[test]
fn help_shows_every_flag_with_its_variable() {
    let help = <Command as clap::CommandFactory>::command().render_long_help().to_string();
    for flag in help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2) {
        let name = flag.trim_start_matches('-');
        if name != "help" {
            let variable = format!("QUIRE_{}", name.to_ascii_uppercase().replace('-', "_"));
            assert!(help.contains(&variable), "{flag} has no {variable}");
        }
    }
}

proptest! {
    #[test]
    fn a_share_of_a_disk_is_under_the_disk_and_exact(disk: u64, percent in 0_u8..100) {
        let reserve = DiskReserve::Percent(percent).bytes_of(disk);
        prop_assert_eq!(u128::from(reserve), u128::from(disk) * u128::from(percent) / 100);
        prop_assert!(reserve <= disk);
    }
}
