//! Which files are opened, which are refused, and that a refused file stays as it was.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn open(path: &Path) -> Result<SqliteRows, OpenError> {
    SqliteRows::open(path, Arc::new(SystemClock::new()), &Options::default())
}

/// Asserts that nothing opens, copies or makes a store here, each with this kind of error, and that the file
/// is left byte for byte.
fn assert_refused(path: &Path, is_expected: impl Fn(&OpenError) -> bool, says: &str) {
    let before = fs::read(path).unwrap();
    let copy = path.with_file_name("copy.db");
    let refusals = [
        open(path).err(),
        pair_id(path).err(),
        create(path, PAIR).err(),
        SqliteAudit::open_read_only(path).err(),
        backup_to(path, &copy).err(),
    ];
    for refusal in refusals {
        let refusal = refusal.expect("it must be refused");
        assert!(is_expected(&refusal), "{refusal:?}");
        let told = refusal.to_string();
        assert!(told.contains(says) && told.contains("rows.db"), "{told}");
    }
    assert!(!copy.exists());
    assert!(fs::read(path).unwrap() == before, "the file is as it was");
}

#[test]
fn a_store_is_made_once_and_carries_its_pair_id() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("rows.db");
    assert_eq!(pair_id(&path).unwrap(), None);
    assert!(matches!(open(&path), Err(OpenError::NotCreated { .. })));
    assert!(!path.exists(), "looking makes nothing");
    create(&path, PAIR).unwrap();
    assert_eq!(pair_id(&path).unwrap(), Some(PAIR));
    assert!(matches!(create(&path, PairId::from_bytes([9; 16])), Err(OpenError::AlreadyCreated { .. })));
    assert_eq!(pair_id(&path).unwrap(), Some(PAIR));
    drop(open(&path).unwrap());
    assert_eq!(pair_id(&path).unwrap(), Some(PAIR));
}

#[test]
fn the_schema_is_one_table_one_index_and_the_pair_id() {
    let folder = TempDir::new().unwrap();
    let connection = beside(&made(folder.path()));
    let sql = "SELECT type || ' ' || name FROM sqlite_schema ORDER BY 1";
    let objects: Vec<String> = connection
        .prepare(sql)
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    // The second index is the primary key.
    assert_eq!(
        objects,
        ["index pastes_by_expiry", "index sqlite_autoindex_pastes_1", "table pastes", "view quire_pair"]
    );
}

#[test]
fn a_store_whose_making_was_interrupted_is_made_again() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("rows.db");
    fs::write(&path, b"").unwrap();
    assert_eq!(pair_id(&path).unwrap(), None);
    assert!(matches!(open(&path), Err(OpenError::NotCreated { .. })));

    // In the middle of its one transaction, with pages written and the journal still there.
    let original = folder.path().join("original.db");
    let connection = beside(&original);
    connection
        .execute_batch(
            "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN; \
             CREATE TABLE pastes (id); INSERT INTO pastes SELECT randomblob(100000) FROM pragma_database_list; \
             INSERT INTO pastes SELECT randomblob(1000000)",
        )
        .unwrap();
    fs::copy(&original, &path).unwrap();
    let journal = path.with_extension("db-journal");
    fs::copy(original.with_extension("db-journal"), &journal).unwrap();
    assert!(fs::metadata(&path).unwrap().len() > 100_000, "half of it was written");
    assert!(fs::metadata(&journal).unwrap().len() > 0);

    assert_eq!(pair_id(&path).unwrap(), None);
    create(&path, PAIR).unwrap();
    assert_eq!(pair_id(&path).unwrap(), Some(PAIR));
    drop(open(&path).unwrap());
}

#[test]
fn a_newer_schema_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = made(folder.path());
    beside(&path).pragma_update(None, "user_version", 2).unwrap();
    let newer = |error: &OpenError| matches!(error, OpenError::Newer { found: 2, known: 1, .. });
    assert_refused(&path, newer, "run the newer quire");
}

#[test]
fn a_database_of_another_program_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("rows.db");
    let other = beside(&path);
    other.execute_batch("PRAGMA application_id = 77; CREATE TABLE t (x)").unwrap();
    let foreign = |error: &OpenError| matches!(error, OpenError::Foreign { application_id: 77, .. });
    assert_refused(&path, foreign, "another program");
    // One that does not say what it is, but is not empty.
    other.execute_batch("PRAGMA application_id = 0").unwrap();
    let foreign = |error: &OpenError| matches!(error, OpenError::Foreign { application_id: 0, .. });
    assert_refused(&path, foreign, "another program");
}

#[test]
fn a_store_without_its_statements_columns_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = made(folder.path());
    beside(&path).execute_batch("ALTER TABLE pastes RENAME COLUMN syntax TO label").unwrap();
    assert!(matches!(open(&path), Err(OpenError::Refused { .. })));
    beside(&path).execute_batch("PRAGMA user_version = 0").unwrap();
    assert!(matches!(open(&path), Err(OpenError::Corrupt { .. })));
}

#[test]
fn garbage_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("rows.db");
    let says_not_sqlite = |error: &OpenError| matches!(error, OpenError::NotADatabase { .. });
    fs::write(&path, b"not a database\n".repeat(1_000)).unwrap();
    assert_refused(&path, says_not_sqlite, "check the path, or restore a backup");
    fs::write(&path, b"short").unwrap();
    assert_refused(&path, says_not_sqlite, "check the path, or restore a backup");

    // A store whose schema page is damaged behind a header that is not.
    let whole = folder.path().join("whole.db");
    create(&whole, PAIR).unwrap();
    let mut damaged = fs::read(&whole).unwrap();
    damaged[100..4_096].fill(0x5A);
    fs::write(&path, damaged).unwrap();
    let says_damaged = |error: &OpenError| matches!(error, OpenError::Corrupt { .. });
    assert_refused(&path, says_damaged, "restore a backup");
}

#[test]
fn a_log_without_its_database_is_kept() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("rows.db");
    fs::write(&path, b"").unwrap();
    fs::write(log_of(&path), b"all that is left").unwrap();
    assert_refused(&path, |error| matches!(error, OpenError::StrayLog { .. }), "write-ahead log");
    fs::remove_file(&path).unwrap();
    assert!(matches!(pair_id(&path), Err(OpenError::StrayLog { .. })));
    assert!(matches!(create(&path, PAIR), Err(OpenError::StrayLog { .. })));
    assert_eq!(fs::read(log_of(&path)).unwrap(), b"all that is left");
}

#[test]
fn names_that_look_like_uris_are_names() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("file:rows.db?mode=memory");
    create(&path, PAIR).unwrap();
    assert!(path.exists());
    assert_eq!(pair_id(&path).unwrap(), Some(PAIR));
}

#[tokio::test]
async fn nothing_is_acknowledged_into_a_file_that_was_removed() {
    for which in ["rows.db", "rows.db-wal"] {
        let store = Store::new();
        insert_new(&*store.rows, new_row(&*store.rows, 1).await).await;
        let file = store.path.with_file_name(which);
        let aside = store.path.with_file_name("aside");
        fs::rename(&file, &aside).unwrap();
        let row = new_row(&*store.rows, 2).await;
        assert_eq!(store.rows.insert(row.clone()).await.unwrap_err().fault(), Fault::Unavailable, "{which}");
        assert_eq!(store.rows.remove(id(1)).await.unwrap_err().fault(), Fault::Unavailable, "{which}");
        fs::write(&file, "").unwrap();
        assert_eq!(store.rows.insert(row.clone()).await.unwrap_err().fault(), Fault::Unavailable, "replaced");
        fs::rename(&aside, &file).unwrap();
        insert_new(&*store.rows, row).await;
    }
}

#[tokio::test]
async fn files_of_rows_are_for_their_owner_alone() {
    let store = Store::new();
    insert_new(&*store.rows, new_row(&*store.rows, 1).await).await;
    backup_to(&store.path, &store.path.with_file_name("copy.db")).unwrap();
    for name in ["rows.db", "rows.db-wal", "rows.db-shm", "copy.db"] {
        let mode = fs::metadata(store.path.with_file_name(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}
