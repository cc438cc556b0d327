use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use dbdyno_types::server::{Address, Target};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{socket_with, sockopt};
use rustls::ClientConnection;

use super::{Transport, tls};
use crate::{Error, ErrorCode, ErrorKind};

/// Limit for connecting and logging in, in all. Servers of MySQL have the same.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for an answer to a request of another protocol.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a TCP connection is silent before the first keepalive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// Time between keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Number of unanswered keepalive probes after which the connection is lost.
const KEEPALIVE_PROBES: u32 = 6;

pub(crate) struct Stream {
    socket: Socket,
    transport: Transport,
    // Boxed: it is large and rarely used.
    tls: Option<Box<ClientConnection>>,
    /// When reads fail; `None` after the login.
    deadline: Option<Instant>,
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Connects without encryption. Reads end at a deadline until [`Stream::disable_timeout`].
    pub(crate) fn connect(target: &Target) -> Result<Self, Error> {
        Self::open(&target.address).map_err(|error| {
            let advice = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    "; check that the server is running and the address is right"
                }
                _ => "",
            };
            Error {
                doing: format!("connecting to {}", target.address),
                message: format!("{error}{advice}"),
                code: ErrorCode::of_io(&error),
                kind: ErrorKind::Connection,
            }
        })
    }

    fn open(address: &Address) -> io::Result<Self> {
        let deadline = Instant::now() + LOGIN_TIMEOUT;
        let socket = match address {
            Address::Socket(path) => Socket::Unix(connect_unix(path, LOGIN_TIMEOUT)?),
            Address::Tcp { host, port } => {
                let socket = connect_tcp(host, *port, deadline)?;
                socket.set_nodelay(true)?;
                set_keepalive(&socket)?;
                Socket::Tcp(socket)
            }
        };
        let transport = match &socket {
            Socket::Unix(_) => Transport::UnixSocket,
            Socket::Tcp(_) => Transport::PlainTcp,
        };
        Ok(Self { socket, transport, tls: None, deadline: Some(deadline) })
    }

    /// Begins a deadline, as that of the login.
    pub(crate) fn start_timeout(&mut self) {
        self.deadline = Some(Instant::now() + LOGIN_TIMEOUT);
    }

    /// Ends the deadline: a statement may take any time.
    pub(crate) fn disable_timeout(&mut self) -> io::Result<()> {
        self.deadline = None;
        Ok(sockopt::set_socket_timeout(self.socket.as_fd(), sockopt::Timeout::Recv, None)?)
    }

    /// Sends a request of another protocol to a server that has answered nothing until the deadline, and returns what
    /// it answers to that; nothing on a Unix socket, whose server is known.
    pub(crate) fn probe(&mut self, request: &[u8]) -> Vec<u8> {
        let mut answer = [0; 64];
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if !is_late || self.transport == Transport::UnixSocket {
            return Vec::new();
        }
        self.deadline = Some(Instant::now() + PROBE_TIMEOUT);
        let received = self.write_all(request).and_then(|()| self.receive(&mut answer, true));
        answer[..received.ok().flatten().unwrap_or(0)].to_vec()
    }

    /// Starts TLS with the target's options.
    pub(crate) fn start_tls(&mut self, target: &Target) -> Result<(), Error> {
        let (tls, transport) = tls::client(target)?;
        let mut tls = Box::new(tls);
        // Here, so that its errors are not reported as login errors.
        complete_handshake(&mut tls, &mut self.raw(true))
            .map_err(|error| tls::handshake_failed(target, &error))?;
        self.tls = Some(tls);
        // A Unix socket remains one.
        if self.transport == Transport::PlainTcp {
            self.transport = transport;
        }
        Ok(())
    }

    /// Who can read what is sent.
    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    /// The hash of the certificate of the server at the other end of TLS.
    pub(crate) fn end_point(&self) -> Option<Vec<u8>> {
        tls::end_point(self.tls.as_ref()?.peer_certificates()?.first()?)
    }

    #[inline]
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut raw = Raw { socket: self.socket.as_fd(), wait: true, deadline: self.deadline };
        match &mut self.tls {
            None => raw.write_all(bytes),
            Some(tls) => write_tls(tls, &mut raw, bytes),
        }
    }

    fn raw(&self, wait: bool) -> Raw<'_> {
        Raw { socket: self.socket.as_fd(), wait, deadline: self.deadline }
    }
}

impl Source for Stream {
    #[inline]
    fn receive(&mut self, into: &mut [u8], wait: bool) -> io::Result<Option<usize>> {
        let mut raw = Raw { socket: self.socket.as_fd(), wait, deadline: self.deadline };
        match &mut self.tls {
            None => none_if_empty(raw.read(into), wait),
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

/// The unencrypted stream. The socket is blocking; `wait` decides for each receive.
struct Raw<'a> {
    socket: BorrowedFd<'a>,
    wait: bool,
    deadline: Option<Instant>,
}

impl io::Read for Raw<'_> {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let (true, Some(deadline)) = (self.wait, self.deadline) {
            limit(self.socket, deadline)?;
        }
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
            // A closed connection is an error, not a signal.
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

/// Limits the next read to the time that is left. No time would be no limit.
#[cold]
fn limit(socket: BorrowedFd<'_>, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    // The system rounds to its ticks.
    let left = left.max(Duration::from_millis(1));
    Ok(sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, Some(left))?)
}

fn complete_handshake(tls: &mut ClientConnection, raw: &mut Raw<'_>) -> io::Result<()> {
    let done = match tls.complete_io(raw) {
        // A timeout after a part of the server's messages is no error for rustls.
        Ok(_) if tls.is_handshaking() => Err(io::ErrorKind::WouldBlock.into()),
        done => done.map(|(received, _)| received),
    };
    none_if_empty(done, true).map(drop)
}

/// Writes in parts, because rustls limits its buffer of unsent data.
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

/// Returns decrypted data as soon as there is any: one receive may bring several records, and polling
/// the socket does not report those still in rustls' buffer.
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
        if none_if_empty(tls.read_tls(raw), wait)?.is_none() {
            return Ok(None);
        }
        tls.process_new_packets().map_err(io::Error::other)?;
        // Responses of the TLS protocol itself, such as to a key update.
        while tls.wants_write() {
            tls.write_tls(raw)?;
        }
    }
}

/// Maps "would block" to `None` for a receive that does not wait, else to a timeout.
#[inline]
fn none_if_empty(received: io::Result<usize>, wait: bool) -> io::Result<Option<usize>> {
    match received {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            if wait {
                Err(timed_out())
            } else {
                Ok(None)
            }
        }
        Err(error) => Err(error),
    }
}

#[cold]
fn timed_out() -> io::Error {
    let message = format!(
        "no answer within {} seconds; another kind of server may listen there, or it is overloaded",
        LOGIN_TIMEOUT.as_secs()
    );
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// Detects a host that disappeared within one and a half minutes, where the system's default is two
/// hours.
fn set_keepalive(socket: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    Ok(sockopt::set_socket_keepalive(socket, true)?)
}

fn connect_tcp(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    for (tried, address) in addresses.iter().enumerate() {
        // The first of two may not be reachable, as with IPv6 in many networks.
        let left = deadline.saturating_duration_since(Instant::now());
        let left = left / (addresses.len() - tried) as u32;
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(address, left) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => last = timed_out(),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to a Unix socket. This waits if its server does not accept the connections that wait already.
fn connect_unix(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new(path)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(limit))?;
    let connected = rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address));
    if connected == Err(rustix::io::Errno::AGAIN) {
        return Err(timed_out());
    }
    connected?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
    Ok(UnixStream::from(socket))
}

/// A source of bytes.
pub(crate) trait Source {
    /// Reads available bytes into `into` and returns their number; `None` if there are none and `wait`
    /// is false, zero if the peer has closed the connection.
    fn receive(&mut self, into: &mut [u8], wait: bool) -> io::Result<Option<usize>>;
}

/// Enough for replies of hundreds of rows, and smaller than a second-level cache.
const INITIAL_SIZE: usize = 128 << 10;

/// Maximum size of a message from a server. No row of a benchmark comes near it; a server could send one
/// that fills the memory.
pub(crate) const MAX_MESSAGE: usize = 64 << 20;

/// Received bytes that are not consumed yet.
///
/// When all bytes are consumed, the next ones are read to its start, so that small replies use the same
/// cache lines. It grows for larger packets, up to [`MAX_MESSAGE`], and never shrinks.
pub(crate) struct ReadBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReadBuffer {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; INITIAL_SIZE], start: 0, end: 0 }
    }

    #[inline]
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Consumes the first `count` unread bytes.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Waits for at least one more byte and reads what is available.
    #[inline]
    pub(crate) fn fill(&mut self, source: &mut impl Source) -> io::Result<()> {
        self.read_from(source, true).map(|_| ())
    }

    /// Reads what is available, without waiting; false if there is nothing.
    #[inline]
    pub(crate) fn try_fill(&mut self, source: &mut impl Source) -> io::Result<bool> {
        self.read_from(source, false)
    }

    #[inline]
    fn read_from(&mut self, source: &mut impl Source, wait: bool) -> io::Result<bool> {
        self.make_space()?;
        match source.receive(&mut self.bytes[self.end..], wait)? {
            Some(0) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection",
            )),
            Some(count) => {
                self.end += count;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Moves the unread bytes, usually a part of a packet, to the front. Grows if they fill the buffer.
    #[inline]
    fn make_space(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            self.grow()?;
        }
        Ok(())
    }

    #[cold]
    fn grow(&mut self) -> io::Result<()> {
        if self.bytes.len() >= MAX_MESSAGE {
            let message = format!("the server sent a message of over {} MiB", MAX_MESSAGE >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        self.bytes.resize((self.bytes.len() * 2).min(MAX_MESSAGE), 0);
        Ok(())
    }
}

/// A source for tests that returns one prepared chunk per call.
#[cfg(test)]
pub(crate) struct ChunkedSource(pub(crate) std::collections::VecDeque<Vec<u8>>);

#[cfg(test)]
impl ChunkedSource {
    /// Splits `bytes` into chunks of these lengths, used cyclically.
    pub(crate) fn split(mut bytes: &[u8], lengths: &[usize]) -> Self {
        let mut chunks = std::collections::VecDeque::new();
        for length in lengths.iter().cycle() {
            if bytes.is_empty() {
                break;
            }
            let (chunk, rest) = bytes.split_at((*length).clamp(1, bytes.len()));
            chunks.push_back(chunk.to_vec());
            bytes = rest;
        }
        Self(chunks)
    }
}

#[cfg(test)]
impl Source for ChunkedSource {
    fn receive(&mut self, into: &mut [u8], wait: bool) -> io::Result<Option<usize>> {
        let Some(mut chunk) = self.0.pop_front() else {
            return Ok(if wait { Some(0) } else { None });
        };
        let count = chunk.len().min(into.len());
        into[..count].copy_from_slice(&chunk[..count]);
        if count < chunk.len() {
            self.0.push_front(chunk.split_off(count));
        }
        Ok(Some(count))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use dbdyno_types::server::Tls;

    use super::*;

    /// A connection over TCP, and the server's side of it.
    fn connected() -> (Stream, TcpStream, Target) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = Target {
            address: Address::Tcp { host: "127.0.0.1".to_owned(), port },
            user: "ann".to_owned(),
            database: None,
            tls: Tls::Required,
            server_public_key: None,
            password: false,
        };
        let stream = Stream::connect(&target).unwrap();
        (stream, listener.accept().unwrap().0, target)
    }

    #[test]
    fn vanished_host_is_detected_after_90_seconds() {
        let (stream, _server, _) = connected();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        let idle = sockopt::tcp_keepidle(&stream).unwrap();
        let interval = sockopt::tcp_keepintvl(&stream).unwrap();
        let probes = sockopt::tcp_keepcnt(&stream).unwrap();
        assert_eq!((idle + interval * probes).as_secs(), 90);
    }

    #[test]
    fn stalled_tls_handshake_is_a_timeout() {
        // Nothing, and a part of a record of the handshake.
        for sent in [&b""[..], b"\x16\x03\x03\x00\x7a\x02"] {
            let (mut stream, mut server, target) = connected();
            stream.deadline = Some(Instant::now() + Duration::from_millis(50));
            server.write_all(sent).unwrap();
            let error = stream.start_tls(&target).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Connection, "{error}");
            assert!(error.message.starts_with("no answer within 10 seconds"), "{error}");
            assert!(error.doing.starts_with("encrypting the connection"), "{error}");
        }
    }

    #[test]
    fn login_has_one_deadline() {
        let (mut stream, mut server, _) = connected();
        stream.deadline = Some(Instant::now() + Duration::from_millis(50));
        // A byte now and then does not move it.
        let sender = std::thread::spawn(move || {
            while server.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut buffer = ReadBuffer::new();
        let error =
            std::iter::repeat_with(|| buffer.fill(&mut stream)).find_map(Result::err).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(stream);
        sender.join().unwrap();
    }

    #[test]
    fn socket_whose_server_does_not_accept_is_a_timeout() {
        // The queue of connections that wait is full.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        let started = Instant::now();
        let error = connect_unix(&path, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= Duration::from_millis(50));
    }

    #[test]
    fn unread_bytes_survive_moving_and_growing() {
        let bytes: Vec<u8> = (0..5 * INITIAL_SIZE).map(|n| (n % 251) as u8).collect();
        let mut source = ChunkedSource::split(&bytes, &[100_000, 1, 70_000]);
        let mut buffer = ReadBuffer::new();
        let mut seen = Vec::new();
        while seen.len() < bytes.len() {
            buffer.fill(&mut source).unwrap();
            if buffer.unread().len() > 2 * INITIAL_SIZE
                || seen.len() + buffer.unread().len() == bytes.len()
            {
                let count = buffer.unread().len().min(INITIAL_SIZE + 7);
                seen.extend_from_slice(&buffer.unread()[..count]);
                buffer.consume(count);
            }
            if source.0.is_empty() {
                seen.extend_from_slice(buffer.unread());
                break;
            }
        }
        assert!(seen == bytes);
    }

    #[test]
    fn message_without_end_is_an_error() {
        /// Sends zeros.
        struct Endless;

        impl Source for Endless {
            fn receive(&mut self, into: &mut [u8], _: bool) -> io::Result<Option<usize>> {
                Ok(Some(into.len()))
            }
        }

        let mut buffer = ReadBuffer::new();
        let error = loop {
            if let Err(error) = buffer.fill(&mut Endless) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(buffer.bytes.capacity(), MAX_MESSAGE);
    }

    #[test]
    fn closed_connection_is_an_error_and_no_data_is_not() {
        let mut buffer = ReadBuffer::new();
        let mut nothing = ChunkedSource::split(&[], &[1]);
        assert!(!buffer.try_fill(&mut nothing).unwrap());
        let error = buffer.fill(&mut nothing).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
