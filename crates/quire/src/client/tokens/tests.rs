use quire_core::paste::Id;
use quire_server::config::url::BaseUrl;

use super::*;

const FAR: &str = "9999-01-01T00:00:00Z";

fn paste(server: &str, id: &str, token: &str) -> Remembered {
    Remembered {
        server: server.to_owned(),
        id: id.to_owned(),
        url: format!("https://public.example/{id}"),
        expires_at: FAR.to_owned(),
        delete_token: token.to_owned(),
    }
}

fn link(server: &str, id: &str) -> Link {
    Link { server: BaseUrl::parse(server).unwrap(), id: Id::parse(id.as_bytes()).unwrap() }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_token_is_found_by_either_name_of_its_server_and_by_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = Tokens::in_folder(dir.path().join("a/b"));
    tokens.remember(paste("http://127.0.0.1:8080", "AAAAAAAAAAAA", "one")).unwrap();
    let found = |server, id| tokens.find(&link(server, id)).unwrap();
    assert_eq!(found("http://127.0.0.1:8080", "AAAAAAAAAAAA").as_deref(), Some("one"));
    assert_eq!(found("https://public.example", "AAAAAAAAAAAA").as_deref(), Some("one"));
    assert_eq!(found("https://other.example", "AAAAAAAAAAAA"), None);
    assert_eq!(found("http://127.0.0.1:8080", "AAAAAAAAAAAa"), None);
    tokens.forget(&link("https://public.example", "AAAAAAAAAAAA")).unwrap();
    assert_eq!(found("http://127.0.0.1:8080", "AAAAAAAAAAAA"), None);
}

#[test]
fn folder_and_files_are_the_users_alone() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("quire");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.join("tokens.json.new"), "left behind").unwrap();
    fs::set_permissions(folder.join("tokens.json.new"), Permissions::from_mode(0o644)).unwrap();
    Tokens::in_folder(folder.clone()).remember(paste("http://a", "AAAAAAAAAAAA", "one")).unwrap();
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("tokens.json")), 0o600);
    assert_eq!(mode(&folder.join("tokens.lock")), 0o600);
    assert!(!folder.join("tokens.json.new").exists());
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = Tokens::in_folder(dir.path().join("quire"));
    let ids: Vec<_> = (0..24).map(|number| format!("AAAAAAAAAA{number:02}")).collect();
    thread::scope(|scope| {
        for id in &ids {
            scope.spawn(|| tokens.remember(paste("http://a", id, id)).unwrap());
        }
    });
    for id in &ids {
        assert_eq!(tokens.find(&link("http://a", id)).unwrap().as_ref(), Some(id));
    }
}

#[test]
fn expired_pastes_are_dropped_in_passing() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = Tokens::in_folder(dir.path().to_owned());
    let mut old = paste("http://a", "AAAAAAAAAAAA", "one");
    old.expires_at = "2001-01-01T00:00:00Z".to_owned();
    tokens.remember(old).unwrap();
    tokens.remember(paste("http://a", "BBBBBBBBBBBB", "two")).unwrap();
    assert_eq!(tokens.read().unwrap().len(), 1);
}

#[test]
fn a_file_that_is_not_understood_is_kept_and_not_shown() {
    for contents in ["{\"version\":1,\"pastes\":[{\"hunter2\"", "{\"version\":2,\"pastes\":[]}"] {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::in_folder(dir.path().to_owned());
        fs::write(tokens.file(), contents).unwrap();
        let error = tokens.remember(paste("http://a", "AAAAAAAAAAAA", "one")).unwrap_err();
        assert!(!format!("{error:#}").contains("hunter2"), "{error:#}");
        assert_eq!(fs::read_to_string(tokens.file()).unwrap(), contents);
    }
}
