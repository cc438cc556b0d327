//! The process that listens at an address of this machine.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::sockopt::socket_peercred;

use crate::{ProcessIdentity, process_ids};

/// The process that listens at a Unix socket; `None` if there is none, or if it is in another
/// container.
pub fn listener(socket: &Path) -> Option<u32> {
    let socket = UnixStream::connect(socket).ok()?;
    // The credentials are those of the process that called listen().
    let pid = socket_peercred(&socket).ok()?.pid.as_raw_nonzero().get();
    u32::try_from(pid).ok()
}

/// Who listens at a TCP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpListener {
    Process(u32),
    /// A process of this machine that this user may not examine, or that is in another container.
    Hidden,
    /// Nobody on this machine.
    Nobody,
    /// The address is not one of this machine, or the name has no address.
    Elsewhere,
}

/// Searches for the process that listens at a TCP address. Connects to nobody.
pub fn tcp_listener(host: &str, port: u16) -> TcpListener {
    let addresses: Vec<IpAddr> = (host, port)
        .to_socket_addrs()
        .map(|all| all.map(|one| one.ip().to_canonical()).collect())
        .unwrap_or_default();
    if !addresses.iter().any(|address| is_local(*address)) {
        return TcpListener::Elsewhere;
    }
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    let tables = [read("/proc/net/tcp"), read("/proc/net/tcp6")];
    let inodes: Vec<u64> =
        tables.iter().flat_map(|table| listening_inodes(table, port, &addresses)).collect();
    if inodes.is_empty() {
        return TcpListener::Nobody;
    }
    owner_of(&inodes).map_or(TcpListener::Hidden, TcpListener::Process)
}

/// Whether an address is one of this machine: then the kernel would also send from it. To other loopback
/// addresses it sends from 127.0.0.1, such as to 127.0.1.1, the address of the host's own name on Debian.
fn is_local(address: IpAddr) -> bool {
    if address.is_loopback() {
        return true;
    }
    let any = match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    // Connecting a datagram socket chooses the route and sends nothing.
    let source = UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|socket| {
        socket.connect(SocketAddr::new(address, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

/// The inodes of sockets that listen on the port at one of the addresses, or at all addresses; in the
/// format of `/proc/net/tcp` (proc_pid_net(5)).
fn listening_inodes(table: &str, port: u16, addresses: &[IpAddr]) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let inode = |line: &str| {
        let mut fields = line.split_whitespace();
        let (address, of_socket) = fields.nth(1)?.split_once(':')?;
        let is_listening = fields.nth(1)? == LISTEN;
        let address = parse_address(address)?.to_canonical();
        let fits = address.is_unspecified() || addresses.contains(&address);
        let is_port = u16::from_str_radix(of_socket, 16) == Ok(port);
        // Queues, timer, retransmissions, user and timeout come before it.
        let inode = fields.nth(5)?.parse().ok()?;
        (is_listening && is_port && fits).then_some(inode)
    };
    table.lines().skip(1).filter_map(inode).collect()
}

/// An address in hexadecimal digits: words in the byte order of this machine.
fn parse_address(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(digits.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match digits.len() {
        8 => Some(IpAddr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            <[u8; 16]>::try_from(words.concat()).ok().map(IpAddr::from)
        }
        _ => None,
    }
}

/// The process that has one of these sockets open: of several, the one that started first, which
/// passed the socket on to the others.
fn owner_of(inodes: &[u64]) -> Option<u32> {
    let links: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let has_it = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|target| links.iter().any(|link| target.as_os_str() == link.as_str()))
    };
    let owners = process_ids().filter(has_it).filter_map(|pid| ProcessIdentity::of(pid).ok());
    owners.min_by_key(|process| process.start_ticks).map(|process| process.pid)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn process_that_listens_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        assert_eq!(listener(&path), None);
        let _socket = UnixListener::bind(&path).unwrap();
        assert_eq!(listener(&path), Some(std::process::id()));
    }

    /// Waits: a process that another test starts has the socket, too, until it executes its program.
    #[track_caller]
    fn becomes(host: &str, port: u16, expected: TcpListener) {
        let start = Instant::now();
        while tcp_listener(host, port) != expected {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", tcp_listener(host, port));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn process_that_listens_on_tcp_is_found() {
        let own = TcpListener::Process(std::process::id());
        for (bound, host) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("127.0.0.1:0", "::ffff:127.0.0.1"),
            ("0.0.0.0:0", "localhost"),
            ("0.0.0.0:0", "127.0.1.1"),
        ] {
            let socket = std::net::TcpListener::bind(bound).unwrap();
            let port = socket.local_addr().unwrap().port();
            becomes(host, port, own);
            drop(socket);
            becomes(host, port, TcpListener::Nobody);
        }
        // Without IPv6 there is nothing to find.
        if let Ok(socket) = std::net::TcpListener::bind("[::]:0") {
            let port = socket.local_addr().unwrap().port();
            becomes("::1", port, own);
            becomes("127.0.0.1", port, own);
        }
        // An address for documentation, of nobody.
        assert_eq!(tcp_listener("192.0.2.1", 3306), TcpListener::Elsewhere);
    }

    #[test]
    fn only_listening_sockets_of_the_address_are_taken() {
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let line = |address: &str, port: u16, state: &str, inode: u64| {
            format!(
                "   0: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 \
                 00000000   100        0 {inode} 1 0000000000000000 100 0 0 10 0\n"
            )
        };
        let (loopback, other) = (word([127, 0, 0, 1]), word([10, 0, 0, 7]));
        let mapped =
            format!("{}{}{}{loopback}", word([0; 4]), word([0; 4]), word([0, 0, 255, 255]));
        let table = [
            "  sl  local_address rem_address   st ...\n".to_owned(),
            line(&loopback, 3306, "0A", 1),
            line(&loopback, 3306, "01", 2),
            line(&loopback, 3307, "0A", 3),
            line(&other, 3306, "0A", 4),
            line(&word([0; 4]), 3306, "0A", 5),
            line(&mapped, 3306, "0A", 6),
            "damaged\n".to_owned(),
        ]
        .concat();
        let found = listening_inodes(&table, 3306, &[IpAddr::V4(Ipv4Addr::LOCALHOST)]);
        assert_eq!(found, [1, 5, 6]);
    }
}
