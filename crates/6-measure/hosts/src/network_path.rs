//! How long answers take from a host: of the agent, and over the network.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use dbdyno_units::Nanos;

/// Timeout of a connection.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A round trip from which on the network takes most of the time of a short query.
const DOMINATES: Nanos = Nanos::from_micros(200);

/// The addresses of the load generator and the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkPath {
    pub host: IpAddr,
    /// This machine's, as the host sees it.
    pub client: IpAddr,
}

impl NetworkPath {
    /// Resolves an address, and finds the local address that reaches it.
    pub(crate) fn find(address: &str) -> Result<Self, String> {
        let mut resolved = (address, 0).to_socket_addrs().map_err(|error| {
            format!("{error}; set `address` to the address that the load generator can reach")
        })?;
        let host = resolved.next().ok_or("it has no IP address")?.ip();
        if host.is_loopback() || host.is_unspecified() {
            return Err(
                "it is an address of this machine; set `address` to that of the host".into()
            );
        }
        let any: IpAddr = if host.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        // Sends nothing, but the kernel chooses the route.
        let client = UdpSocket::bind((any, 0))
            .and_then(|socket| socket.connect((host, 9)).and_then(|()| socket.local_addr()));
        let client = client.map_err(|error| format!("there is no route to it: {error}"))?.ip();
        Ok(Self { host, client })
    }

    /// The median time of `count` connections to this port.
    pub(crate) fn round_trip(self, port: u16, count: u32) -> Result<Nanos, String> {
        let mut times = Vec::new();
        for _ in 0..count {
            let started = Instant::now();
            TcpStream::connect_timeout(&SocketAddr::from((self.host, port)), TIMEOUT).map_err(
                |error| format!("port {port}: {error}; a firewall must let all ports through"),
            )?;
            times.push(Nanos::from(started.elapsed()));
        }
        times.sort();
        Ok(times[times.len() / 2])
    }
}

/// How long answers take from a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Median time of a request to the agent, over ssh.
    pub agent: Nanos,
    /// Median round trip of the network: the time of a TCP connection.
    pub network: Nanos,
    /// The host's clock minus this machine's, in nanoseconds.
    pub clock_offset: i64,
}

impl Timing {
    /// The figures in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let (offset, sign) = (self.clock_offset.unsigned_abs(), self.clock_offset >= 0);
        let sign = if sign { "ahead" } else { "behind" };
        format!(
            "network round trip {}, agent answers in {}, clock {} {sign}",
            self.network,
            self.agent,
            Nanos::from_nanos(offset)
        )
    }

    /// Whether the network takes most of the time of a short query.
    #[must_use]
    pub fn network_dominates(&self) -> bool {
        self.network >= DOMINATES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_only_are_refused() {
        for address in ["127.0.0.1", "::1", "0.0.0.0", "localhost"] {
            assert!(NetworkPath::find(address).is_err(), "{address}");
        }
        let unknown = NetworkPath::find("no-such-host.invalid").unwrap_err();
        assert!(unknown.contains("set `address`"), "{unknown}");
    }

    #[test]
    fn timing_is_described() {
        let timing = Timing {
            agent: Nanos::from_micros(210),
            network: Nanos::from_micros(48),
            clock_offset: -1_500_000,
        };
        let expected = "network round trip 48 µs, agent answers in 210 µs, clock 1.5 ms behind";
        assert_eq!(timing.describe(), expected);
        assert!(!timing.network_dominates());
        assert!(Timing { network: Nanos::from_micros(250), ..timing }.network_dominates());
    }
}
