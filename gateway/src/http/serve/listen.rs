//! Where connections come from.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Something that connections come from.
pub trait Listen: Send {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection, with the address of its peer and that of this machine which it came to, where there are
    /// such. May be dropped at any await.
    fn accept(
        &mut self,
    ) -> impl Future<Output = io::Result<(Self::Stream, Option<SocketAddr>, Option<IpAddr>)>> + Send;
}

impl Listen for TcpListener {
    type Stream = TcpStream;

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
    type Stream = UnixStream;

    async fn accept(&mut self) -> io::Result<(UnixStream, Option<SocketAddr>, Option<IpAddr>)> {
        let (stream, _) = Self::accept(self).await?;
        Ok((stream, None, None))
    }
}
