//! A real PgBouncer, from the installed binary, between a gateway and its Postgres.

use std::fs::File;

use crate::disk::is_root;
use crate::process::{Home, eventually, find_program, free_port, loopback, tail_of};

/// A PgBouncer. It ends when this is dropped, or with the test process.
#[derive(Debug)]
pub struct PgBouncer {
    _home: Home,
    port: u16,
}

impl PgBouncer {
    /// Starts it before the server at this port of the loopback, with a `pool_mode`.
    pub async fn start(postgres: u16, mode: &str) -> Self {
        let program = find_program("pgbouncer", &[])
            .expect("PgBouncer is not installed: install the package pgbouncer");
        let mut home = Home::new("pgbouncer");
        let port = free_port();
        let file = home.path().join("pgbouncer.ini");
        std::fs::write(&file, config(postgres, port, mode)).expect("it can be written");
        let log = home.path().join("log");
        let output = File::create(&log).expect("a log file");
        home.spawn(&program, |command| {
            // It refuses to run as root, and reads its file as whom it runs as.
            if is_root() {
                command.args(["-u", "nobody"]);
            }
            command.arg(&file).stdout(output.try_clone().expect("a shared file")).stderr(output);
        });
        eventually("PgBouncer takes connections", async || {
            assert!(home.running(), "PgBouncer does not start:\n{}", tail_of(&log));
            tokio::net::TcpStream::connect(loopback(port)).await.ok()
        })
        .await;
        Self { _home: home, port }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}

fn config(postgres: u16, port: u16, mode: &str) -> String {
    format!(
        "[databases]
* = host=127.0.0.1 port={postgres} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = 60
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
"
    )
}
