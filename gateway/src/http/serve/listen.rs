//! Where connections come from.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::http::identify::Shown;
use crate::http::peers::Peer;
use fencegate_access::Identity;
use futures::FutureExt as _;
use futures::future::{BoxFuture, pending};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

/// Listens on an address, with a backlog of `pending_max` connections, or of what the kernel allows
/// (`net.core.somaxconn`). The kernel drops what comes beyond without a word: the caller believes that it is connected,
/// and its packets are sent again at growing intervals, for up to a minute.
///
/// # Errors
/// The address cannot be had.
pub fn listen_on(address: SocketAddr, pending_max: usize) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // The connections of a gateway that has just ended do not keep the next one out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(u32::try_from(pending_max).unwrap_or(u32::MAX))
}

/// A connection that has been accepted, and has not begun yet.
pub trait Opening: Send + 'static {
    /// What requests come on.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Begins it, within this time, in the turn of its peer if that is counted. `None` if that came to nothing.
    fn open(
        self,
        counted: Option<Peer>,
        limit: Duration,
    ) -> impl Future<Output = Option<Opened<Self::Stream>>> + Send;
}

/// A connection that has begun.
pub struct Opened<S> {
    /// What requests come on.
    pub stream: S,
    /// What it shows of who is there.
    pub shown: Shown,
    /// Whether it is by TLS.
    pub is_secured: bool,
    /// Ends when that is not good any more, and the connection must end.
    pub refused: BoxFuture<'static, ()>,
}

impl<S> Opened<S> {
    /// One that shows what never ends.
    pub fn new(stream: S, shown: Shown) -> Self {
        Self { stream, shown, is_secured: false, refused: pending().boxed() }
    }
}

impl Opening for TcpStream {
    type Stream = Self;

    async fn open(self, _counted: Option<Peer>, _limit: Duration) -> Option<Opened<Self>> {
        Some(Opened::new(self, Shown::default()))
    }
}

impl Opening for UnixStream {
    type Stream = Self;

    /// The kernel tells whose process is at the other end.
    async fn open(self, _counted: Option<Peer>, _limit: Duration) -> Option<Opened<Self>> {
        let peer = self.peer_cred().ok();
        let identity = peer.map(|peer| Identity::Unix { uid: peer.uid(), gid: peer.gid() });
        Some(Opened::new(self, Shown(identity.map(Arc::new))))
    }
}

/// Something that connections come from.
pub trait Listen: Send {
    /// A connection.
    type Accepted: Opening;

    /// The next connection, with the address of its peer and that of this machine which it came to, where there are
    /// such. May be dropped at any await.
    fn accept(
        &mut self,
    ) -> impl Future<Output = io::Result<(Self::Accepted, Option<SocketAddr>, Option<IpAddr>)>> + Send;
}

impl Listen for TcpListener {
    type Accepted = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, Option<SocketAddr>, Option<IpAddr>)> {
        let (stream, peer) = Self::accept(self).await?;
        // An answer goes out at once, not when the kernel has gathered more.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        let local = stream.local_addr().ok().map(|to| to.ip().to_canonical());
        Ok((stream, Some(peer), local))
    }
}

impl Listen for UnixListener {
    type Accepted = UnixStream;

    async fn accept(&mut self) -> io::Result<(UnixStream, Option<SocketAddr>, Option<IpAddr>)> {
        let (stream, _) = Self::accept(self).await?;
        Ok((stream, None, None))
    }
}

#[cfg(test)]
mod tests {
    use futures::future::try_join_all;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    /// More than a listener takes by default, before the first is accepted.
    #[tokio::test]
    async fn a_burst_of_callers_stands_at_the_door_and_none_is_dropped() {
        const BURST: usize = 1_500;
        let kernel = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let burst = BURST.min(kernel.trim().parse().unwrap());
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        let mut listener = listen_on("127.0.0.1:0".parse().unwrap(), BURST).unwrap();
        let address = listener.local_addr().unwrap();
        let connecting = try_join_all((0..burst).map(|_| TcpStream::connect(address)));
        let connected = tokio::time::timeout(Duration::from_secs(30), connecting).await;
        let callers = connected.expect("none is dropped").unwrap();
        for _ in &callers {
            Listen::accept(&mut listener).await.unwrap();
        }
    }
}
