use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use dbdyno_record::server::{Address, Target};
use rustix::net::{RecvFlags, SendFlags, sockopt};
use rustls::ClientConnection;

use super::{Source, tls};
use crate::{Error, ErrorKind};

/// How long a server may take to accept a connection, and to answer each step of the login.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a server as a stream of bytes.
pub(crate) struct Stream {
    socket: Socket,
    // Boxed: it is large, and absent where speed matters most.
    tls: Option<Box<ClientConnection>>,
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Connects, in clear. Waits for answers are limited until [`Stream::wait_forever`].
    ///
    /// # Errors
    /// Nobody listens there, or it cannot be reached.
    pub(crate) fn connect(target: &Target) -> Result<Self, Error> {
        Self::open(&target.address).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    "; is the server running, and is the address right?"
                }
                _ => "",
            };
            Error {
                doing: format!("connecting to {}", target.address),
                message: format!("{error}{advice}"),
                code: error.raw_os_error().unwrap_or_default(),
                kind: ErrorKind::Connection,
            }
        })
    }

    fn open(address: &Address) -> io::Result<Self> {
        let socket = match address {
            Address::Socket(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                Socket::Unix(socket)
            }
            Address::Tcp { host, port } => {
                let socket = connect_tcp(host, *port)?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                // A host that vanished without a word is noticed some day.
                sockopt::set_socket_keepalive(&socket, true)?;
                Socket::Tcp(socket)
            }
        };
        Ok(Self { socket, tls: None })
    }

    /// Lifts the limit on waiting for the server: a statement may take as long as it takes.
    ///
    /// # Errors
    /// The socket is broken.
    pub(crate) fn wait_forever(&self) -> io::Result<()> {
        match &self.socket {
            Socket::Unix(socket) => socket.set_read_timeout(None),
            Socket::Tcp(socket) => socket.set_read_timeout(None),
        }
    }

    /// Encrypts everything from here on, as the target says.
    ///
    /// # Errors
    /// The server's certificate is not good, the two sides have no protocol in common, or the
    /// authorities cannot be read.
    pub(crate) fn start_tls(&mut self, target: &Target) -> Result<(), Error> {
        let doing = || format!("encrypting the connection to {}", target.address);
        let mut tls = Box::new(tls::client(target)?);
        // The handshake to its end, so that its errors are told apart from those of the login.
        tls.complete_io(&mut Raw { socket: self.socket.as_fd(), wait: true }).map_err(|error| {
            // An error of rustls comes wrapped: that is a refusal, all others are the network's.
            let kind = match error.get_ref() {
                Some(inner) if inner.is::<rustls::Error>() => ErrorKind::Refused,
                _ => ErrorKind::Connection,
            };
            Error {
                doing: doing(),
                message: error.to_string(),
                code: error.raw_os_error().unwrap_or_default(),
                kind,
            }
        })?;
        self.tls = Some(tls);
        Ok(())
    }

    /// Whether a secret can be sent as it is: nobody but the server can read along.
    pub(crate) fn is_private(&self) -> bool {
        self.tls.is_some() || matches!(self.socket, Socket::Unix(_))
    }

    /// Sends all bytes.
    ///
    /// # Errors
    /// The connection is lost.
    #[inline]
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut raw = Raw { socket: self.socket.as_fd(), wait: true };
        match &mut self.tls {
            None => raw.write_all(bytes),
            Some(tls) => write_tls(tls, &mut raw, bytes),
        }
    }
}

impl Source for Stream {
    #[inline]
    fn receive(&mut self, into: &mut [u8], wait: bool) -> io::Result<Option<usize>> {
        let mut raw = Raw { socket: self.socket.as_fd(), wait };
        match &mut self.tls {
            None => unless_empty(raw.read(into), wait),
            Some(tls) => receive_tls(tls, &mut raw, into),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Socket {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

/// What is sent and received without encryption. The socket itself always blocks; a receive that
/// must not wait says so by itself.
struct Raw<'a> {
    socket: BorrowedFd<'a>,
    wait: bool,
}

impl io::Read for Raw<'_> {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let flags = if self.wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        loop {
            match rustix::net::recv(self.socket, &mut *into, flags) {
                Ok((count, _)) => return Ok(count),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl io::Write for Raw<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            // No signal: a closed connection is an error like others.
            match rustix::net::send(self.socket, bytes, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// rustls keeps only so much that is not sent yet.
fn write_tls(tls: &mut ClientConnection, raw: &mut Raw<'_>, bytes: &[u8]) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        let count = tls.writer().write(left)?;
        left = &left[count..];
        while tls.wants_write() {
            tls.write_tls(raw)?;
        }
    }
    Ok(())
}

/// Returns clear text as soon as there is any: what one receive brought may hold several records,
/// and whoever polls the socket would not hear of those left inside.
fn receive_tls(
    tls: &mut ClientConnection,
    raw: &mut Raw<'_>,
    into: &mut [u8],
) -> io::Result<Option<usize>> {
    loop {
        match tls.reader().read(into) {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let wait = raw.wait;
        if unless_empty(tls.read_tls(raw), wait)?.is_none() {
            return Ok(None);
        }
        tls.process_new_packets().map_err(io::Error::other)?;
        // Answers of the protocol itself, such as to a change of keys.
        while tls.wants_write() {
            tls.write_tls(raw)?;
        }
    }
}

/// Takes "nothing there" for an answer where nobody wanted to wait; else it is a wait that has
/// taken too long.
#[inline]
fn unless_empty(received: io::Result<usize>, wait: bool) -> io::Result<Option<usize>> {
    match received {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            if wait {
                let message = format!("no answer for {} seconds", PATIENCE.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, message))
            } else {
                Ok(None)
            }
        }
        Err(error) => Err(error),
    }
}

fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}
