//! A real nginx, from the installed binary, as a proxy in front of a gateway.

use std::fs::File;
use std::net::SocketAddr;

use crate::process::{Home, eventually, find_program, free_port, loopback, tail_of};

/// An nginx with one upstream named `fencegate`. It ends when this is dropped, or with the test
/// process.
#[derive(Debug)]
pub struct Nginx {
    home: Home,
    address: SocketAddr,
}

impl Nginx {
    /// Starts it with this `location` block.
    pub async fn start(location: &str, upstream: SocketAddr) -> Self {
        let program =
            find_program("nginx", &[]).expect("nginx is not installed: install the package nginx");
        let mut home = Home::new("nginx");
        let address = loopback(free_port());
        let dir = home.path().to_owned();
        let file = dir.join("nginx.conf");
        std::fs::write(&file, config(&dir.display().to_string(), location, address, upstream))
            .expect("the configuration can be written");
        let log = dir.join("log");
        let output = File::create(&log).expect("a log file");
        home.spawn(&program, |command| {
            command
                .arg("-p")
                .arg(&dir)
                .arg("-c")
                .arg(&file)
                .arg("-e")
                .arg(&log)
                .stdout(output.try_clone().expect("a file can be shared"))
                .stderr(output);
        });
        eventually("nginx takes connections", async || {
            assert!(home.running(), "nginx does not start:\n{}", tail_of(&log));
            tokio::net::TcpStream::connect(address).await.ok()
        })
        .await;
        Self { home, address }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it wrote into its access log and its error log so far.
    pub fn logs(&self) -> (String, String) {
        let read = |name| std::fs::read_to_string(self.home.path().join(name)).expect("a log");
        (read("access.log"), read("log"))
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn config(dir: &str, location: &str, address: SocketAddr, upstream: SocketAddr) -> String {
    // As root it would hand its work to a user that cannot enter the directory; as anybody else
    // the line means nothing.
    format!(
        "user root;
daemon off;
worker_processes 1;
pid {dir}/nginx.pid;
error_log {dir}/log warn;
events {{}}
http {{
access_log {dir}/access.log;
client_body_temp_path {dir}/body;
proxy_temp_path {dir}/proxy;
fastcgi_temp_path {dir}/fastcgi;
uwsgi_temp_path {dir}/uwsgi;
scgi_temp_path {dir}/scgi;
upstream fencegate {{ server {upstream}; }}
server {{
listen {address};
{location}
}}
}}
"
    )
}
