//! A real Redis, from the installed binary, and the few words of its protocol that a lock needs.

use std::fs::File;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::process::{Home, eventually, find_program, free_port, loopback, tail_of};

/// A Redis. It ends when this is dropped, or with the test process.
#[derive(Debug)]
pub struct Redis {
    home: Home,
    address: SocketAddr,
}

/// What Redis answers.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// A word such as `OK`, or a string.
    Text(String),
    /// A number.
    Number(i64),
    /// Nothing there, or not done.
    Nil,
}

impl Redis {
    /// Starts it.
    pub async fn start() -> Self {
        Self::with(&["--appendonly", "no"]).await
    }

    /// Starts one that has each write on disk before it answers.
    pub async fn durable() -> Self {
        Self::with(&["--appendonly", "yes", "--appendfsync", "always"]).await
    }

    async fn with(args: &[&str]) -> Self {
        let program = find_program("redis-server", &[])
            .expect("redis-server is not installed: install the package redis-server");
        let mut home = Home::new("redis");
        let address = loopback(free_port());
        let log = home.path().join("log");
        let output = File::create(&log).expect("a log file");
        let dir = home.path().to_owned();
        home.spawn(&program, |command| {
            command
                .args(["--bind", &address.ip().to_string()])
                .args(["--port", &address.port().to_string()])
                .args(["--save", "", "--daemonize", "no", "--dir"])
                .arg(dir)
                .args(args)
                .stdout(output.try_clone().expect("a file can be shared"))
                .stderr(output);
        });
        eventually("Redis takes connections", async || {
            assert!(home.running(), "Redis does not start:\n{}", tail_of(&log));
            TcpStream::connect(address).await.ok()
        })
        .await;
        Self { home, address }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.home.pid()
    }

    /// Sends one command and takes its answer.
    pub async fn command<const N: usize>(&self, words: [&str; N]) -> Reply {
        let stream = TcpStream::connect(self.address).await.expect("Redis takes connections");
        let mut stream = BufReader::new(stream);
        let mut request = format!("*{N}\r\n");
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        stream.write_all(request.as_bytes()).await.expect("Redis reads");
        let mut line = String::new();
        stream.read_line(&mut line).await.expect("Redis answers");
        let (kind, rest) = line.trim_end().split_at(1);
        let number = || rest.parse::<i64>().expect("a number");
        match kind {
            "+" => Reply::Text(rest.to_owned()),
            ":" => Reply::Number(number()),
            "$" => match usize::try_from(number()) {
                Err(_) => Reply::Nil,
                Ok(length) => {
                    let mut bytes = vec![0; length];
                    stream.read_exact(&mut bytes).await.expect("Redis answers in full");
                    Reply::Text(String::from_utf8(bytes).expect("tests store text"))
                }
            },
            _ => panic!("Redis answers {line:?} to {words:?}"),
        }
    }

    /// The usual lock, `SET key owner NX PX ttl`, and if it is won the next number of an `INCR`. Both
    /// in one step: whoever stalled between them would count itself above its successor.
    pub async fn lock(&self, key: &str, owner: &str, ttl_ms: u64) -> Option<i64> {
        const SCRIPT: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
            return redis.call('INCR', KEYS[2]) end";
        let (order, ttl) = (format!("{key}:order"), ttl_ms.to_string());
        match self.command(["EVAL", SCRIPT, "2", key, &order, owner, &ttl]).await {
            Reply::Number(order) => Some(order),
            Reply::Nil => None,
            other => panic!("Redis counts {other:?}"),
        }
    }
}
