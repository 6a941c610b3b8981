//! A network that is slow: a proxy in front of a server that holds every piece of data back for a while.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use crate::pass;

/// Passes connections on to a server. It ends with the process.
#[derive(Debug)]
pub struct SlowProxy {
    address: SocketAddr,
    delay_ms: Arc<AtomicU64>,
}

impl SlowProxy {
    /// A proxy in front of `server`, without a delay yet.
    ///
    /// # Errors
    /// If there is no free port.
    pub fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (address, delay_ms) = (listener.local_addr()?, Arc::new(AtomicU64::new(0)));
        let delay = Arc::clone(&delay_ms);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(server) else { continue };
                for (from, to) in [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))] {
                    let (Ok(from), Ok(to)) = (from, to) else { continue };
                    let delay = Arc::clone(&delay);
                    thread::spawn(move || pass_on(from, to, &delay));
                }
            }
        });
        Ok(Self { address, delay_ms })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on everything takes this much longer, each way.
    ///
    /// # Errors
    /// If that is no number of milliseconds.
    pub fn delay(&self, time: Duration) -> anyhow::Result<()> {
        self.delay_ms.store(u64::try_from(time.as_millis())?, Ordering::SeqCst);
        Ok(())
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, delay_ms: &AtomicU64) {
    let mut piece = [0; 16_384];
    while let Ok(length) = from.read(&mut piece) {
        pass(Duration::from_millis(delay_ms.load(Ordering::SeqCst)));
        let Some(piece) = piece.get(..length).filter(|piece| !piece.is_empty()) else { break };
        if to.write_all(piece).is_err() {
            break;
        }
    }
    // One side is gone; so is the connection, for the other.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
