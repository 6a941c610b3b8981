//! What a connection's peer has sent that hyper has not taken yet, as far as it belongs to heads.
//!
//! hyper shows a head only when it is whole and accepted, without what was cut off its target, and keeps what
//! comes after it to itself. So the bytes are followed here on their way in: a head to its end, a body of
//! known length past its end, then the next head, whether or not it was sent before the first was answered.
//!
//! Promises: no more is kept than hyper reads of a head, and nothing while a connection is idle. It must
//! never decide where a message ends other than hyper does; where it cannot know, after a body of unknown
//! length, it says so and begins anew.

use super::connection::HEAD_BYTES_MAX;

/// Room that is kept while a connection is idle, so that most heads need no allocation.
const ROOM_BYTES_KEPT: usize = 1_024;
/// What may be read at once even where there is no room. hyper has refused a head before that is needed.
const READ_BYTES_MIN: usize = 1_024;

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// The head that is being read, and what was sent after it.
    heads: Vec<u8>,
    /// Bytes of the present body that are still to come.
    body_bytes_left: u64,
    /// Whether the present body has no known length, so that what follows cannot be told from it.
    is_body_open: bool,
}

impl Inbound {
    /// How many bytes may come at once without one being missed.
    pub(super) fn room_bytes(&self) -> usize {
        if self.is_body_open {
            return usize::MAX;
        }
        let body = usize::try_from(self.body_bytes_left).unwrap_or(usize::MAX);
        HEAD_BYTES_MAX.saturating_sub(self.heads.len()).max(READ_BYTES_MIN).saturating_add(body)
    }

    /// Bytes came.
    pub(super) fn received(&mut self, bytes: &[u8]) {
        if self.is_body_open {
            return;
        }
        let bytes = self.after_body(bytes);
        let room = HEAD_BYTES_MAX.saturating_sub(self.heads.len()).min(bytes.len());
        self.heads.extend_from_slice(bytes.get(..room).unwrap_or_default());
    }

    /// hyper has taken a head; a body of so many bytes follows. Says whether its target has a `#` in front of
    /// the query.
    pub(super) fn head_taken(&mut self, body_bytes: Option<u64>) -> bool {
        let end = head_end(&self.heads).unwrap_or(self.heads.len());
        let has_fragment = has_fragment(self.heads.get(..end).unwrap_or_default());
        self.body_bytes_left = body_bytes.unwrap_or(0);
        self.is_body_open = body_bytes.is_none();
        let rest = self.heads.get(end..).unwrap_or_default();
        let of_body = if self.is_body_open { rest.len() } else { clamp(self.body_bytes_left, rest.len()) };
        self.body_bytes_left = self.body_bytes_left.saturating_sub(widen(of_body));
        self.heads.drain(..end.saturating_add(of_body).min(self.heads.len()));
        if self.heads.is_empty() && self.heads.capacity() > ROOM_BYTES_KEPT {
            self.heads = Vec::new();
        }
        has_fragment
    }

    /// An answer has left. Says whether the next head may have begun already.
    pub(super) fn head_may_have_begun(&mut self) -> bool {
        std::mem::take(&mut self.is_body_open) || !self.heads.is_empty()
    }

    /// The head that is being read, as far as it came.
    pub(super) fn head(&self) -> &[u8] {
        &self.heads
    }

    /// The part of what came that does not belong to the present body.
    fn after_body<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let of_body = clamp(self.body_bytes_left, bytes.len());
        self.body_bytes_left = self.body_bytes_left.saturating_sub(widen(of_body));
        bytes.get(of_body..).unwrap_or_default()
    }
}

fn clamp(bytes: u64, max: usize) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX).min(max)
}

fn widen(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Where the first head ends, after the empty line. Lines may end in a bare line feed, and empty lines in
/// front of a head are allowed, as for hyper.
pub(super) fn head_end(bytes: &[u8]) -> Option<usize> {
    let mut line_begins = empty_lines(bytes);
    loop {
        let line = bytes.get(line_begins..)?;
        let length = line.iter().position(|byte| *byte == b'\n')?;
        line_begins += length + 1;
        if matches!(line.get(..length), Some([] | [b'\r'])) {
            return Some(line_begins);
        }
    }
}

/// How many bytes of empty lines stand at the front.
fn empty_lines(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count()
}

fn has_fragment(head: &[u8]) -> bool {
    let request_line = head.get(empty_lines(head)..).unwrap_or_default().iter();
    // A query may hold anything, since it is ignored.
    request_line.take_while(|byte| !matches!(byte, b'\n' | b'?')).any(|byte| *byte == b'#')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_head_ends_at_its_first_empty_line() {
        for (bytes, end) in [
            ("GET / HTTP/1.1\r\nA: b\r\n\r\nrest", Some(24)),
            ("\r\n\nGET /\n\nrest", Some(10)),
            ("GET /\n\r\n", Some(8)),
            ("GET /\r\n\r", None),
            ("\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(head_end(bytes.as_bytes()), end, "{bytes:?}");
        }
    }

    #[test]
    fn a_fragment_counts_only_in_front_of_the_query() {
        for (head, is_there) in [
            ("GET /a#b HTTP/1.1\r\n\r\n", true),
            ("\r\n\r\nGET /a#b HTTP/1.1\r\n\r\n", true),
            ("\nGET /a#b?c HTTP/1.1\n\n", true),
            ("GET /a?b#c HTTP/1.1\r\n\r\n", false),
            ("GET /a HTTP/1.1\r\nA: #\r\n\r\n", false),
        ] {
            assert_eq!(has_fragment(head.as_bytes()), is_there, "{head:?}");
        }
    }

    #[test]
    fn after_a_body_of_unknown_length_it_begins_anew() {
        let mut inbound = Inbound::default();
        inbound.received(b"POST / HTTP/1.1\r\n\r\n4\r\n");
        inbound.head_taken(None);
        inbound.received(b"text\r\n0\r\n\r\n");
        assert!(inbound.head().is_empty());
        assert!(inbound.head_may_have_begun());
        inbound.received(b"GET /#a HTTP/1.1\r\n\r\n");
        assert!(inbound.head_taken(Some(0)));
        assert!(!inbound.head_may_have_begun());
    }

    proptest! {
        #[test]
        fn every_head_of_a_pipeline_is_seen_however_it_is_cut(
            requests in proptest::collection::vec((any::<bool>(), 0_usize..3_000, 0_usize..200), 1..20),
            cut in 1_usize..5_000,
        ) {
            let bytes: Vec<u8> = requests.iter().flat_map(|(fragment, body, label)| {
                let target = if *fragment { "/a#b" } else { "/a" };
                let head = format!("POST {target} HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(*label));
                [head.into_bytes(), vec![b'#'; *body]].concat()
            }).collect();
            let mut waiting = requests.iter();
            let mut inbound = Inbound::default();
            let mut sent = 0;
            while sent < bytes.len() {
                let now = cut.min(inbound.room_bytes()).min(bytes.len() - sent);
                inbound.received(&bytes[sent..sent + now]);
                sent += now;
                while head_end(inbound.head()).is_some() {
                    let (fragment, body, _) = waiting.next().unwrap();
                    prop_assert_eq!(inbound.head_taken(Some(u64::try_from(*body).unwrap())), *fragment);
                }
            }
            prop_assert!(waiting.next().is_none());
            prop_assert!(!inbound.head_may_have_begun());
            prop_assert!(inbound.heads.capacity() <= ROOM_BYTES_KEPT);
        }

        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..100), body: Option<u64>) {
            let mut inbound = Inbound::default();
            inbound.received(&bytes);
            inbound.head_taken(body);
            inbound.received(&bytes);
            prop_assert!(inbound.room_bytes() > 0);
        }
    }
}
