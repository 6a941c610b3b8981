//! HTTP/1.1 over a raw socket.
//!
//! It sends exactly the bytes a test gives it and keeps exactly the bytes that came. It knows just enough of
//! HTTP to find where an answer ends, and refuses an answer whose length it would have to guess.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

/// How long an answer is waited for unless a test says otherwise.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One answer, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Every byte of it as it came.
    pub raw: Vec<u8>,
    /// The status code.
    pub status: u16,
    /// Header lines in their order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// A header's value; `None` if it is not there.
    ///
    /// # Errors
    /// If it stands more than once.
    pub fn header(&self, name: &str) -> anyhow::Result<Option<&str>> {
        let mut values = self.headers.iter().filter(|(candidate, _)| candidate == name);
        let value = values.next().map(|(_, value)| value.as_str());
        ensure!(values.next().is_none(), "{name} stands more than once");
        Ok(value)
    }

    /// All of it but for the `Date` line, to compare two answers by every other byte.
    #[must_use]
    pub fn without_date(&self) -> String {
        let raw = String::from_utf8_lossy(&self.raw);
        let is_date = |line: &&str| line.to_ascii_lowercase().starts_with("date:");
        raw.split_inclusive('\n').filter(|line| !is_date(line)).collect()
    }

    /// The body as text.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub fn text(&self) -> anyhow::Result<&str> {
        std::str::from_utf8(&self.body).context("the answer's body is not UTF-8")
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// If it is not JSON.
    pub fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {:?}", self.text()))
    }

    /// The `error` of a JSON error body.
    ///
    /// # Errors
    /// If there is none.
    pub fn error(&self) -> anyhow::Result<String> {
        let json = self.json()?;
        let code = json.get("error").and_then(serde_json::Value::as_str);
        code.map(str::to_owned).with_context(|| format!("no error in {json}"))
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// What came and was not taken yet.
    pending: Vec<u8>,
}

impl Client {
    /// Connects; waits for answers for [`PATIENCE`].
    ///
    /// # Errors
    /// If nobody listens.
    pub fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).context("connect")?;
        Self::over(stream)
    }

    /// Connects from a given address of this machine, such as 127.0.0.2, to be another source.
    ///
    /// # Errors
    /// If the address is not this machine's or nobody listens.
    pub fn connect_from(from: IpAddr, address: SocketAddr) -> anyhow::Result<Self> {
        let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket(family, SocketType::STREAM, None).context("socket")?;
        bind(&socket, &SocketAddr::new(from, 0)).context("bind")?;
        connect(&socket, &address).context("connect")?;
        Self::over(TcpStream::from(socket))
    }

    fn over(stream: TcpStream) -> anyhow::Result<Self> {
        // Every send is a segment of its own, so that tests decide where they begin and end.
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, pending: Vec::new() })
    }

    /// The socket, for what this client cannot do.
    #[must_use]
    pub const fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Waits longer, or less long, for what comes.
    ///
    /// # Errors
    /// If the socket refuses.
    pub fn be_patient(&mut self, time: Duration) -> anyhow::Result<()> {
        self.stream.set_read_timeout(Some(time)).context("set a read timeout")
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// If the peer has closed.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
        self.stream.write_all(bytes.as_ref()).context("send")
    }

    /// Says that nothing more will be sent, and goes on reading.
    ///
    /// # Errors
    /// If the socket is gone.
    pub fn finish_sending(&mut self) -> anyhow::Result<()> {
        self.stream.shutdown(Shutdown::Write).context("shutdown")
    }

    /// Reads the next answer to a request other than `HEAD`.
    ///
    /// # Errors
    /// If none comes, or it is cut off.
    pub fn answer(&mut self) -> anyhow::Result<Answer> {
        self.read_answer(true)
    }

    /// Reads the next answer to a `HEAD` request, which has no body.
    ///
    /// # Errors
    /// If none comes, or it is cut off.
    pub fn answer_to_head(&mut self) -> anyhow::Result<Answer> {
        self.read_answer(false)
    }

    /// Sends a request that is not `HEAD` and reads its answer.
    ///
    /// # Errors
    /// If either fails.
    pub fn exchange(&mut self, request: impl AsRef<[u8]>) -> anyhow::Result<Answer> {
        self.send(request)?;
        self.answer()
    }

    /// Everything that still comes until the peer closes.
    ///
    /// # Errors
    /// If the peer does not close in time. A reset counts as closing.
    pub fn rest(&mut self) -> anyhow::Result<Vec<u8>> {
        while self.read_more()? > 0 {}
        Ok(std::mem::take(&mut self.pending))
    }

    /// Waits for the peer to close, and says how long that took.
    ///
    /// # Errors
    /// If it does not, or sends anything before.
    pub fn closed_after(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let rest = self.rest()?;
        ensure!(rest.is_empty(), "came before the close: {:?}", String::from_utf8_lossy(&rest));
        Ok(began.elapsed())
    }

    fn read_answer(&mut self, has_body: bool) -> anyhow::Result<Answer> {
        let head_end = loop {
            if let Some(at) = self.pending.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if self.read_more()? == 0 {
                bail!("closed before an answer; came: {:?}", String::from_utf8_lossy(&self.pending));
            }
        };
        let head = String::from_utf8(self.pending.get(..head_end).unwrap_or_default().to_vec())?;
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let status: u16 = status_line.split(' ').nth(1).context("no status")?.parse()?;
        let mut headers = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':').with_context(|| format!("no header: {line}"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut answer = Answer { raw: Vec::new(), status, headers, body: Vec::new() };
        let body_bytes = match answer.header("content-length")? {
            _ if !has_body || matches!(status, 100..200 | 204 | 304) => 0,
            Some(length) => length.parse()?,
            None => bail!("no Content-Length: {head}"),
        };
        while self.pending.len() < head_end + body_bytes {
            if self.read_more()? == 0 {
                bail!("closed {} bytes before the end", head_end + body_bytes - self.pending.len());
            }
        }
        let rest = self.pending.split_off(head_end + body_bytes);
        answer.raw = std::mem::replace(&mut self.pending, rest);
        answer.body = answer.raw.get(head_end..).unwrap_or_default().to_vec();
        Ok(answer)
    }

    /// Reads once; zero is the end.
    fn read_more(&mut self) -> anyhow::Result<usize> {
        let mut chunk = [0; 16_384];
        let count = match self.stream.read(&mut chunk) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return self.read_more(),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error).context("nothing came in time"),
        };
        self.pending.extend_from_slice(chunk.get(..count).unwrap_or_default());
        Ok(count)
    }
}

/// A request with a `Host`, these header lines, and a body with its length if there is one.
#[must_use]
pub fn request(method: &str, target: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Vec<u8> {
    let mut lines = vec![format!("{method} {target} HTTP/1.1"), "Host: paste.test".to_owned()];
    lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
    lines.extend(body.map(|body| format!("Content-Length: {}", body.len())));
    let head = lines.join("\r\n") + "\r\n\r\n";
    [head.as_bytes(), body.unwrap_or_default()].concat()
}

/// One request over a connection of its own. `HEAD` is understood.
///
/// # Errors
/// If there is no whole answer.
pub fn ask(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: Option<&[u8]>,
) -> anyhow::Result<Answer> {
    let mut client = Client::connect(address)?;
    client.send(request(method, target, headers, body))?;
    if method == "HEAD" { client.answer_to_head() } else { client.answer() }
}

/// What a create was answered.
#[derive(Clone, Debug)]
pub struct Created {
    /// The id.
    pub id: String,
    /// The link.
    pub url: String,
    /// The expiry as text.
    pub expires_at: String,
    /// The delete token.
    pub delete_token: String,
}

/// Reads the answer to a create that must have succeeded.
///
/// # Errors
/// If it did not.
pub fn created(answer: &Answer) -> anyhow::Result<Created> {
    ensure!(answer.status == 201, "not created: {}", String::from_utf8_lossy(&answer.raw));
    let json = answer.json()?;
    let field = |name: &str| {
        let value = json.get(name).and_then(serde_json::Value::as_str);
        value.map(str::to_owned).with_context(|| format!("no {name} in {json}"))
    };
    Ok(Created {
        id: field("id")?,
        url: field("url")?,
        expires_at: field("expires_at")?,
        delete_token: field("delete_token")?,
    })
}

/// Creates a paste.
///
/// # Errors
/// If that fails.
pub fn create(
    address: SocketAddr,
    text: impl AsRef<[u8]>,
    headers: &[(&str, &str)],
) -> anyhow::Result<Created> {
    created(&ask(address, "POST", "/v1/pastes", headers, Some(text.as_ref()))?)
}
