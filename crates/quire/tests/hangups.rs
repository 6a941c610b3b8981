//! Clients that go away at every stage leave a server that serves, and nothing half done.

mod common;

use std::{collections::HashSet, net::Shutdown, time::Duration};

use common::start;
use quire_testkit::{
    client::{Client, ask, create, request},
    eventually,
    server::Server,
};

/// What a client that hangs up has sent by then.
fn beginnings() -> Vec<Vec<u8>> {
    let small = request("POST", "/v1/pastes", &[], Some(b"hello"));
    let large = request("POST", "/v1/pastes", &[], Some(&vec![b'a'; 1_000_000]));
    let too_large = request("POST", "/v1/pastes", &[], Some(&vec![b'a'; 2_000_000]));
    let first = |bytes: &[u8], count: usize| bytes.iter().copied().take(count).collect::<Vec<_>>();
    let waiting = request("POST", "/v1/pastes", &[("Content-Length", "5"), ("Expect", "100-continue")], None);
    let mut stages: Vec<_> = (0..=small.len()).map(|count| first(&small, count)).collect();
    stages.extend([1_000, 20_000, 500_000, 999_999].map(|count| first(&large, count)));
    stages.push(large);
    stages.push(waiting);
    stages.push(request("POST", "/v1/pastes", &[("Transfer-Encoding", "chunked")], None));
    stages.push(first(&too_large, 100_000));
    stages.push(small.repeat(20));
    stages
}

fn serves(server: &mut Server) -> anyhow::Result<()> {
    anyhow::ensure!(server.is_running()?, "the server is gone: {}", server.log());
    let paste = create(server.public, "still here", &[])?;
    let answer = ask(server.public, "GET", &format!("/{}", paste.id), &[], None)?;
    assert_eq!(answer.text()?, "still here");
    Ok(())
}

/// Every paste there is can be read whole: nothing is half done.
fn check_all(server: &Server, texts: &HashSet<&[u8]>) -> anyhow::Result<usize> {
    let rows = rusqlite::Connection::open(server.data().join("rows.db"))?;
    let mut select = rows.prepare("SELECT id FROM pastes")?;
    let ids = select.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    for id in &ids {
        let answer = ask(server.public, "GET", &format!("/{id}"), &[], None)?;
        assert_eq!(answer.status, 200);
        assert!(texts.contains(&answer.body[..]), "{} other bytes", answer.body.len());
    }
    Ok(ids.len())
}

#[test]
fn hanging_up_at_every_stage_of_a_create() -> anyhow::Result<()> {
    let mut server = start(&[])?;
    for (number, beginning) in beginnings().iter().enumerate() {
        for reset in [false, true] {
            let mut client = Client::connect(server.public)?;
            // A refusal may come and the connection close before all is sent.
            let _ = client.send(beginning);
            if !reset {
                // An orderly end of sending; without it the close resets when an answer has come unread.
                let _ = client.socket().shutdown(Shutdown::Both);
            }
        }
        if number % 20 == 0 {
            serves(&mut server)?;
        }
    }
    serves(&mut server)?;
    let large = vec![b'a'; 1_000_000];
    let texts = HashSet::from([&b"hello"[..], b"still here", &large]);
    // The work of those who left goes on to its end.
    let mut before = 0;
    eventually("nothing is created any more", Duration::from_secs(20), || {
        let now = check_all(&server, &texts)?;
        Ok(std::mem::replace(&mut before, now) == now)
    })
}

#[test]
fn hanging_up_in_the_middle_of_an_answer() -> anyhow::Result<()> {
    let mut server = start(&[])?;
    let paste = create(server.public, "a".repeat(1_000_000), &[])?;
    let get = request("GET", &format!("/{}", paste.id), &[], None);
    for asked in [1, 2, 50] {
        for _ in 0..20 {
            let mut client = Client::connect(server.public)?;
            client.send(get.repeat(asked))?;
            drop(client);
        }
    }
    let token = [("X-Delete-Token", paste.delete_token.as_str())];
    let mut client = Client::connect(server.public)?;
    client.send(request("DELETE", &format!("/v1/pastes/{}", paste.id), &token, None))?;
    drop(client);
    // Whether the delete was read before its client was gone is open; that it is whole is not.
    let status = ask(server.public, "GET", &format!("/{}", paste.id), &[], None)?.status;
    assert!(matches!(status, 200 | 404), "{status}");
    serves(&mut server)
}

#[test]
fn many_clients_that_post_and_go() -> anyhow::Result<()> {
    let mut server = start(&[])?;
    let before = server.resident_bytes()?;
    let post = request("POST", "/v1/pastes", &[], Some("a".repeat(100_000).as_bytes()));
    for _ in 0..1_000 {
        let mut client = Client::connect(server.public)?;
        client.send(&post)?;
    }
    serves(&mut server)?;
    let grown = server.resident_bytes()?.saturating_sub(before);
    assert!(grown < 200_000_000, "{grown} bytes");
    Ok(())
}
