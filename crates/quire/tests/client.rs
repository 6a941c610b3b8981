//! The command-line client, run as a person runs it, against a server that answers from a script (W4).

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails, in its helpers too"
)]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output, Stdio},
    thread::{self, JoinHandle},
};

const ID: &str = "7Kq2mP9xL0aB";
const TOKEN: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// What the server does with one request, the whole of which it has read.
enum Reply {
    /// Sends these bytes and closes.
    Send(String),
    /// Closes without a word.
    Close,
}

fn reply(status: u16, headers: &str, body: &str) -> Reply {
    let length = body.len();
    Reply::Send(format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n{headers}\r\n{body}"))
}

fn json(status: u16, headers: &str, body: &str) -> Reply {
    reply(status, &format!("Content-Type: application/json\r\n{headers}"), body)
}

fn created(server: &str) -> Reply {
    let body = format!(
        r#"{{"id":"{ID}","url":"{server}/{ID}","expires_at":"9999-11-02T17:44:00Z","delete_token":"{TOKEN}"}}"#
    );
    json(201, "", &body)
}

/// A server on loopback that gives one answer a connection, in the order of its script.
struct FakeServer {
    address: SocketAddr,
    thread: JoinHandle<Vec<String>>,
}

impl FakeServer {
    /// `script` is told the server's URL.
    fn start(script: impl FnOnce(&str) -> Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut script = script(&format!("http://{address}")).into_iter();
        let thread = thread::spawn(move || {
            let mut requests = Vec::new();
            loop {
                let mut stream = listener.accept().unwrap().0;
                let request = read_request(&mut stream);
                if request.is_empty() {
                    return requests;
                }
                requests.push(request);
                if let Some(Reply::Send(answer)) = script.next() {
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        Self { address, thread }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request that came, in order.
    fn stop(self) -> Vec<String> {
        // A connection that says nothing comes after all others in the queue.
        TcpStream::connect(self.address).unwrap().shutdown(Shutdown::Write).unwrap();
        self.thread.join().unwrap()
    }
}

fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    let mut chunk = [0; 4_096];
    loop {
        let text = String::from_utf8_lossy(&request).to_string();
        // The begin of a TLS handshake, which has no head to wait for.
        if text.starts_with('\x16') {
            return text;
        }
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        match stream.read(&mut chunk).unwrap() {
            0 => return text,
            count => request.extend_from_slice(&chunk[..count]),
        }
    }
}

/// Someone with a state folder of their own.
struct Person {
    state: tempfile::TempDir,
}

impl Person {
    fn new() -> Self {
        Self { state: tempfile::tempdir().unwrap() }
    }

    fn quire(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quire"));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_clear().env("XDG_STATE_HOME", self.state.path());
        // A proxy from the environment would make every test fail.
        command.env("http_proxy", "http://127.0.0.1:1").env("ALL_PROXY", "http://127.0.0.1:1");
        let mut child = command.spawn().unwrap();
        // It may have stopped reading: a body that is too large is not read to its end.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    fn tokens_file(&self) -> std::path::PathBuf {
        self.state.path().join("quire/tokens.json")
    }

    fn remembers(&self) -> bool {
        fs::read_to_string(self.tokens_file()).is_ok_and(|tokens| tokens.contains(TOKEN))
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).to_string()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).to_string()
}

fn assert_fails(output: &Output, said: &str) {
    assert_eq!(output.status.code(), Some(1), "{}", stderr(output));
    assert!(stderr(output).contains(said), "expected '{said}' in: {}", stderr(output));
    assert_eq!(stdout(output), "");
}

#[test]
fn put_sends_the_bytes_prints_the_link_and_remembers_the_token() {
    let person = Person::new();
    let server = FakeServer::start(|url| vec![created(url)]);
    let url = server.url();
    let arguments = ["put", "--server", &url, "--ttl", "7d", "--syntax", "rust"];
    let output = person.quire(&arguments, "h\u{e9}\r\n".as_bytes());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!((stdout(&output), stderr(&output)), (format!("{url}/{ID}\n"), String::new()));
    let requests = server.stop();
    let [request] = &requests[..] else { panic!("{requests:?}") };
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/pastes HTTP/1.1\r\n"), "{head}");
    let head = head.to_lowercase();
    for header in ["content-length: 5", "x-paste-ttl: 7d", "x-paste-syntax: rust", "content-type: text/plain"]
    {
        assert!(head.contains(header), "{head}");
    }
    assert_eq!(body, "h\u{e9}\r\n");
    assert!(person.remembers());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&person.tokens_file()), 0o600);
    assert_eq!(mode(person.tokens_file().parent().unwrap()), 0o700);
}

#[test]
fn put_reads_a_file_and_prints_the_whole_answer_when_asked() {
    let person = Person::new();
    let file = person.state.path().join("notes.txt");
    fs::write(&file, "from a file").unwrap();
    let server = FakeServer::start(|url| vec![created(&format!("{url}/sub"))]);
    let sub_path = format!("{}/sub/", server.url());
    let output = person.quire(&["put", "--json", "--server", &sub_path, file.to_str().unwrap()], b"");
    assert!(output.status.success(), "{}", stderr(&output));
    let answer: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(answer["delete_token"], TOKEN);
    let requests = server.stop();
    assert!(
        requests[0].starts_with("POST /sub/v1/pastes ") && requests[0].ends_with("from a file"),
        "{requests:?}"
    );
    assert!(!requests[0].to_lowercase().contains("x-paste-ttl"), "the server's default is the server's");
}

#[test]
fn what_cannot_be_a_paste_is_refused_before_anything_is_sent() {
    let person = Person::new();
    let server = FakeServer::start(|_| Vec::new());
    let url = server.url();
    let put = |input: &[u8]| person.quire(&["put", "--server", &url, "-"], input);
    assert_fails(&put(b""), "is empty");
    assert_fails(&put(&vec![b'x'; 5_000_000]), "larger than 1,000,000 bytes");
    assert_fails(&put(b"abc\xff"), "offset 3");
    assert_fails(&person.quire(&["put", "--server", &url, "/no/such/file"], b""), "/no/such/file");
    assert_fails(&person.quire(&["put", "--server", "paste.example"], b"x"), "must begin with http");
    for usage in
        [&["put", "--ttl", "2d"][..], &["put", "--syntax", "a b"], &["put", "a", "b"], &["frobnicate"], &[]]
    {
        assert_eq!(person.quire(usage, b"x").status.code(), Some(2), "{usage:?}");
    }
    assert_eq!(server.stop(), Vec::<String>::new());
}

#[test]
fn put_takes_a_body_of_the_largest_size() {
    let person = Person::new();
    let server = FakeServer::start(|url| vec![created(url)]);
    let output = person.quire(&["put", "--server", &server.url()], &vec![b'x'; 1_000_000]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(server.stop()[0].to_lowercase().contains("content-length: 1000000"));
}

#[test]
fn a_create_is_sent_again_after_429_and_503() {
    for refusal in [
        r#"429 {"error":"rate_limited","limit":"source_creates","message":"too many"}"#,
        r#"503 {"error":"overloaded","message":"too much is waiting"}"#,
    ] {
        let (status, body) = refusal.split_once(' ').unwrap();
        let refuse = || json(status.parse().unwrap(), "Retry-After: 1\r\n", body);
        let person = Person::new();
        let server = FakeServer::start(|url| vec![refuse(), created(url)]);
        let url = server.url();
        let output = person.quire(&["put", "--server", &url], b"hello");
        assert_eq!((output.status.code(), stdout(&output)), (Some(0), format!("{url}/{ID}\n")));
        assert!(stderr(&output).contains("trying again in 1 s"), "{}", stderr(&output));
        let requests = server.stop();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[0], requests[1]);
    }
}

#[test]
fn a_wait_that_is_too_long_is_left_to_the_person() {
    let refusal = || json(429, "Retry-After: 3600\r\n", r#"{"error":"rate_limited","message":"too many"}"#);
    let server = FakeServer::start(|_| vec![refusal()]);
    let output = Person::new().quire(&["put", "--server", &server.url()], b"hello");
    assert_fails(&output, "Nothing was stored. Try again in 3600 s");
    assert_eq!(server.stop().len(), 1);
}

#[test]
fn a_create_is_never_sent_again_when_it_may_have_been_stored() {
    let cut_short = || Reply::Send("HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n{\"id\":".to_owned());
    let proxys_503 =
        || reply(503, "Content-Type: text/html\r\nRetry-After: 1\r\n", "<h1>Backend fetch failed</h1>");
    let storage_failed = || json(500, "", r#"{"error":"storage_failed","message":"it was not stored"}"#);
    let not_json = || reply(201, "", "<html>");
    for answer in [Reply::Close, cut_short(), proxys_503(), storage_failed(), not_json()] {
        let server = FakeServer::start(|_| vec![answer]);
        let output = Person::new().quire(&["put", "--server", &server.url()], b"hello");
        assert_fails(&output, "may have been stored");
        assert_eq!(server.stop().len(), 1);
    }
}

#[test]
fn refusals_and_wrong_servers_are_explained() {
    let too_large = || json(413, "", r#"{"error":"too_large","message":"at most 1,000,000 bytes"}"#);
    let page = || reply(200, "Content-Type: text/html\r\n", "<html>Welcome</html>");
    let moved = || reply(301, "Location: https://paste.example/v1/pastes\r\n", "");
    for (answer, said) in [
        (too_large(), "413 too_large: at most 1,000,000 bytes"),
        (page(), "not as quire does"),
        (reply(404, "", "nothing here"), "--server"),
        (moved(), "redirects to https://paste.example"),
    ] {
        let server = FakeServer::start(|_| vec![answer]);
        assert_fails(&Person::new().quire(&["put", "--server", &server.url()], b"hello"), said);
        assert_eq!(server.stop().len(), 1);
    }
}

#[test]
fn a_server_that_is_not_there_is_explained() {
    // Bound and closed again, so that nobody listens there.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = format!("http://{address}");
    let person = Person::new();
    let output = person.quire(&["put", "--server", &server], b"hello");
    assert_fails(&output, "Nothing was sent. Start a server with 'quire serve'");
    assert_fails(&person.quire(&["get", ID, "--server", &server], b""), "did not answer");
    assert_fails(&person.quire(&["rm", ID, "--token", TOKEN, "--server", &server], b""), "cannot be reached");
}

#[test]
fn a_failed_handshake_has_sent_nothing() {
    let server = FakeServer::start(|_| vec![reply(400, "", "this port speaks no TLS")]);
    let https = server.url().replace("http://", "https://");
    let output = Person::new().quire(&["put", "--server", &https], b"hello");
    assert_fails(&output, "Nothing was sent");
    server.stop();
}

#[test]
fn a_paste_whose_token_cannot_be_kept_is_not_lost() {
    let person = Person::new();
    fs::write(person.state.path().join("quire"), "a file where the folder should be").unwrap();
    let server = FakeServer::start(|url| vec![created(url)]);
    let output = person.quire(&["put", "--server", &server.url()], b"hello");
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), format!("{}/{ID}\n", server.url())));
    assert!(stderr(&output).contains("warning") && stderr(&output).contains(TOKEN), "{}", stderr(&output));
    server.stop();
}

#[test]
fn get_writes_the_bytes_as_they_are() {
    let paste = || reply(200, "X-Paste-Expires-At: 2026-11-02T17:44:00Z\r\n", "a\r\n\u{feff}b");
    let server = FakeServer::start(|_| vec![paste(), paste()]);
    let url = server.url();
    for arguments in [&["get", ID, "--server", &url][..], &["get", &format!("{url}/{ID}?x#y")]] {
        let output = Person::new().quire(arguments, b"");
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(output.stdout, "a\r\n\u{feff}b".as_bytes());
    }
    for request in server.stop() {
        assert!(request.starts_with(&format!("GET /v1/pastes/{ID} HTTP/1.1\r\n")), "{request}");
    }
}

#[test]
fn get_says_why_there_is_nothing() {
    let cut_short =
        || Reply::Send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nX-Paste-Expires-At: x\r\n\r\nabc".to_owned());
    for (answer, said) in [
        (json(404, "", r#"{"error":"not_found"}"#), "no such paste"),
        (reply(404, "", "nothing here"), "not as quire does"),
        (reply(200, "Content-Type: text/html\r\n", "<html>"), "not as quire does"),
        (json(503, "Retry-After: 7\r\n", r#"{"error":"unavailable"}"#), "Try again in 7 s"),
        (cut_short(), "no whole answer"),
        (Reply::Close, "no whole answer"),
    ] {
        let server = FakeServer::start(|_| vec![answer]);
        assert_fails(&Person::new().quire(&["get", ID, "--server", &server.url()], b""), said);
        server.stop();
    }
    assert_fails(&Person::new().quire(&["get", "nonsense"], b""), "neither an id");
}

#[test]
fn get_is_quiet_when_its_reader_has_gone() {
    let body = "x".repeat(1_000_000);
    let server = FakeServer::start(|_| vec![reply(200, "X-Paste-Expires-At: x\r\n", &body)]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_quire"))
        .args(["get", ID, "--server", &server.url()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    server.stop();
}

#[test]
fn rm_uses_the_remembered_token_and_forgets_it_when_the_paste_is_gone() {
    let not_found = || json(404, "", r#"{"error":"not_found"}"#);
    for answer in [reply(204, "", ""), not_found()] {
        let is_deleted = matches!(&answer, Reply::Send(text) if text.starts_with("HTTP/1.1 204"));
        let person = Person::new();
        let server = FakeServer::start(|url| vec![created(url), answer]);
        let put = person.quire(&["put", "--server", &server.url()], b"hello");
        let output = person.quire(&["rm", stdout(&put).trim()], b"");
        assert_eq!(output.status.success(), is_deleted, "{}", stderr(&output));
        let request = server.stop().remove(1).to_lowercase();
        assert!(request.starts_with(&format!("delete /v1/pastes/{}", ID.to_lowercase())), "{request}");
        assert!(request.contains(&format!("x-delete-token: {}", TOKEN.to_lowercase())), "{request}");
        assert!(!person.remembers());
    }
}

#[test]
fn rm_keeps_the_token_while_the_paste_may_be_there() {
    let proxys_404 = || reply(404, "Content-Type: text/html\r\n", "<html>");
    let unavailable = || json(503, "Retry-After: 1\r\n", r#"{"error":"unavailable"}"#);
    for answer in [proxys_404(), unavailable(), Reply::Close] {
        let person = Person::new();
        let server = FakeServer::start(|url| vec![created(url), answer]);
        let url = server.url();
        person.quire(&["put", "--server", &url], b"hello");
        let output = person.quire(&["rm", ID, "--server", &url], b"");
        assert_fails(&output, "perhaps");
        assert!(person.remembers());
        server.stop();
    }
}

#[test]
fn rm_sends_a_token_only_to_the_server_it_came_from() {
    let person = Person::new();
    let server = FakeServer::start(|url| vec![created(url)]);
    person.quire(&["put", "--server", &server.url()], b"hello");
    let other = FakeServer::start(|_| Vec::new());
    let output = person.quire(&["rm", &format!("{}/{ID}", other.url())], b"");
    assert_fails(&output, "no delete token is remembered");
    assert_eq!(other.stop(), Vec::<String>::new());
    server.stop();
}

#[test]
fn a_wrong_token_given_by_hand_does_not_lose_the_remembered_one() {
    let person = Person::new();
    let not_found = || json(404, "", r#"{"error":"not_found"}"#);
    let server = FakeServer::start(|url| vec![created(url), not_found()]);
    let url = server.url();
    person.quire(&["put", "--server", &url], b"hello");
    let wrong = "BBBBBBBBBBBBBBBBBBBBBB";
    assert_fails(
        &person.quire(&["rm", ID, "--token", wrong, "--server", &url], b""),
        "no such paste with this token",
    );
    assert!(person.remembers());
    assert_fails(&person.quire(&["rm", ID, "--token", "short", "--server", &url], b""), "22 letters");
    assert_eq!(server.stop().len(), 2);
}
