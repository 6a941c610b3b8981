//! `quire put`: posts text, prints its link, remembers its delete token.
//!
//! 1 read and check, before anything is sent; 2 create, again only after an answer that says nothing was
//! stored; 3 remember the token; 4 print. A paste that was made is never lost to a fault of 3 or 4: whatever
//! could not be kept is said on standard error.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, builder::PossibleValuesParser};
use quire_core::paste::{BODY_BYTES_MAX, DeleteToken, Id, Syntax, Text, TextError, Ttl};
use quire_server::{config::url::BaseUrl, http::wire::CreatedAnswer};

use super::{
    ServerArgs,
    http::{Answer, Client, ExchangeError, shown},
    link::api_url,
    retry::{self, Next, Refusal},
    tokens::{Remembered, Tokens},
};
use crate::tell;

/// The flags of `quire put`.
#[derive(Args, Debug)]
pub(crate) struct PutArgs {
    /// File to post; standard input if it is absent or '-'
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// How long the paste lives [default: 30d]
    #[arg(long, value_name = "TTL", value_parser = PossibleValuesParser::new(Ttl::ALL.map(Ttl::as_str)))]
    ttl: Option<String>,

    /// Label for highlighting, as in rust; at most 32 visible ASCII characters
    #[arg(long, value_name = "LABEL", value_parser = syntax)]
    syntax: Option<String>,

    /// Print the server's whole answer, the delete token included
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Posts.
pub(crate) fn run(args: &PutArgs) -> anyhow::Result<ExitCode> {
    let server = args.server.url()?;
    let text = read_input(args.file.as_ref())?;
    let answer = create(&Client::new(), &server, args, &text)?;
    let created = check_created(&answer).ok_or_else(|| {
        anyhow!("{}. Something may have been stored; it is not sent again.", not_quires(answer.status()))
    })?;
    let remembered = remember(&server, &created);
    if let Err(error) = &remembered {
        tell(&format!("warning: the delete token could not be remembered: {error:#}"));
        tell(&format!("to delete this paste: quire rm {} --token {}", created.url, created.delete_token));
    }
    let line = if args.json {
        String::from_utf8_lossy(answer.body()).trim().to_owned()
    } else {
        created.url.clone()
    };
    writeln!(io::stdout(), "{line}")
        .with_context(|| format!("the paste is at {}, but it could not be printed", created.url))?;
    Ok(ExitCode::SUCCESS)
}

fn syntax(written: &str) -> Result<String, String> {
    match Syntax::parse(written.as_bytes()) {
        Some(_) => Ok(written.to_owned()),
        None => Err("a label is 1 to 32 visible ASCII characters without spaces".to_owned()),
    }
}

/// Reads one byte more than a body may have, and checks what came.
fn read_input(file: Option<&PathBuf>) -> anyhow::Result<Text> {
    let file = file.filter(|file| file.as_os_str() != "-");
    let (name, bytes) = if let Some(path) = file {
        let name = path.display().to_string();
        let bytes = File::open(path).and_then(read_bounded).with_context(|| format!("cannot read {name}"))?;
        (name, bytes)
    } else {
        if io::stdin().is_terminal() {
            tell("reading from the terminal; end with Ctrl+D");
        }
        let bytes = read_bounded(io::stdin().lock()).context("cannot read standard input")?;
        ("standard input".to_owned(), bytes)
    };
    let valid_len = std::str::from_utf8(&bytes).err().map(|error| error.valid_up_to());
    Text::new(bytes.into()).map_err(|error| match error {
        TextError::Empty => anyhow!("{name} is empty; a paste has at least one byte"),
        TextError::TooLarge => {
            anyhow!("{name} is larger than 1,000,000 bytes, the most a paste can hold; send a part of it")
        }
        TextError::NotUtf8 => anyhow!(
            "{name} is not UTF-8 text: the byte at offset {} is not; convert it first (iconv), a binary with base64",
            valid_len.unwrap_or_default()
        ),
    })
}

fn read_bounded(reader: impl Read) -> io::Result<Vec<u8>> {
    let limit = u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    reader.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Sends until the server takes it, refuses it for good, or there were enough tries.
fn create(client: &Client, server: &BaseUrl, args: &PutArgs, text: &Text) -> anyhow::Result<Answer> {
    let mut headers = vec![("content-type", "text/plain; charset=utf-8")];
    headers.extend(args.ttl.as_deref().map(|ttl| ("x-paste-ttl", ttl)));
    headers.extend(args.syntax.as_deref().map(|syntax| ("x-paste-syntax", syntax)));
    let (mut tries, mut waited) = (1, Duration::ZERO);
    loop {
        let answer = match client.post(&api_url(server), &headers, text.bytes()) {
            Ok(answer) => answer,
            Err(error @ ExchangeError::NotSent(_)) => bail!(
                "{server}: {error}. Nothing was sent. Start a server with 'quire serve', or name one with --server."
            ),
            Err(error @ ExchangeError::Lost(_)) => bail!(
                "{server}: {error}. The paste may have been stored, so it is not sent again: that could store it \
                 twice. To accept that, run the command again."
            ),
        };
        let refusal = Refusal {
            status: answer.status(),
            is_from_quire: answer.error().is_some(),
            retry_after: answer.header("retry-after"),
        };
        match retry::next(refusal, tries, waited) {
            Next::Take if answer.status() == 201 => return Ok(answer),
            Next::Take => bail!("{}. {}", answer.describe(), advice(&answer)),
            Next::GiveUp(wait) => {
                bail!("{}. Nothing was stored. Try again in {} s.", answer.describe(), wait.as_secs())
            }
            Next::Wait(wait) => {
                let (seconds, tries_max) = (wait.as_secs(), retry::TRIES_MAX);
                tell(&format!(
                    "{}; trying again in {seconds} s (try {tries} of {tries_max})",
                    answer.describe()
                ));
                pause(wait);
                waited += wait;
                tries += 1;
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server has named a time, and there is no event to wait for"
)]
fn pause(wait: Duration) {
    std::thread::sleep(wait);
}

/// What a person can do about an answer that is no success.
fn advice(answer: &Answer) -> &'static str {
    match (answer.status(), answer.error().is_some()) {
        (413, _) => "A paste holds at most 1,000,000 bytes; send a part of it.",
        (500.., true) => "The paste may have been stored. To risk storing it twice, run the command again.",
        (500.., false) => {
            "It may come from a proxy that lost the server's answer, so the paste may have been stored. To risk \
             storing it twice, run the command again."
        }
        (300..400, _) | (400..500, true) => "Nothing was stored.",
        _ => "Check the URL given with --server or QUIRE_SERVER.",
    }
}

fn not_quires(status: u16) -> String {
    format!("the server answered {status}, but not as quire does; check --server")
}

/// The answer, if every part of it is what quire would send.
fn check_created(answer: &Answer) -> Option<CreatedAnswer> {
    let created: CreatedAnswer = serde_json::from_slice(answer.body()).ok()?;
    Id::parse(created.id.as_bytes())?;
    DeleteToken::parse(created.delete_token.as_bytes())?;
    let is_link = created.url.ends_with(&created.id) && !created.url.contains(char::is_whitespace);
    (is_link && shown(&created.url) == created.url).then_some(created)
}

fn remember(server: &BaseUrl, created: &CreatedAnswer) -> anyhow::Result<()> {
    Tokens::of_user()?.remember(Remembered {
        server: server.as_str().to_owned(),
        id: created.id.clone(),
        url: created.url.clone(),
        expires_at: created.expires_at.clone(),
        delete_token: created.delete_token.clone(),
    })
}
