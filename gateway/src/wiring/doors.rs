//! The doors: `listen`, and `admin_listen`, which serves the same API with room of its own.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use fencegate_s3::key::Keys;
use futures::future::{BoxFuture, try_join_all};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use super::{blobs, descriptors};
use crate::config::{AdminAddress, ClientAuth, Config, HostName, Network, TlsBy, Ui};
use crate::engine::Engine;
use crate::http::identify::Issuers;
use crate::http::middleware::Doors;
use crate::http::peers::Proxies;
use crate::http::proxy::Upstreams;
use crate::http::room::Room;
use crate::http::routes::{Exported, Ground};
use crate::http::ui::Page;
use crate::http::{self, App, AppState, ClientFiles, Door, Limits, S3Told, Secured, Tls, TlsFiles};
use crate::s3;

/// Connections behind all of `admin_listen` together.
const ADMIN_CONNECTIONS: usize = 64;
/// The part of `bodies_bytes_max` that there is for bodies behind `admin_listen`, beside it.
const ADMIN_BODIES_SHARE: usize = 8;

/// What is listened to.
pub(super) struct Listeners {
    main: TcpListener,
    admin: Vec<AdminListener>,
    s3: Option<TcpListener>,
    /// What connections are secured with, but those to a Unix socket.
    tls: Option<Arc<Tls>>,
}

enum AdminListener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

impl Listeners {
    /// Where requests are taken; with port 0 in the settings the port that was free.
    ///
    /// # Errors
    /// The system does not say.
    pub(super) fn address(&self) -> anyhow::Result<SocketAddr> {
        self.main.local_addr().context("cannot read the own address")
    }

    /// Where S3 is spoken, if it is.
    ///
    /// # Errors
    /// The system does not say.
    pub(super) fn s3_address(&self) -> anyhow::Result<Option<SocketAddr>> {
        let address = self.s3.as_ref().map(TcpListener::local_addr).transpose();
        address.context("cannot read the own address")
    }
}

/// Listens to all that the settings name.
///
/// # Errors
/// Which of it cannot be listened to, and why; or which file of TLS cannot be used.
pub(super) async fn bind(config: &Config) -> anyhow::Result<Listeners> {
    warnings(config).iter().for_each(|warning| tracing::warn!("{warning}"));
    let tls = tls_files(config).map(Tls::new).transpose().context("cannot use TLS")?;
    let listen = |address, connections_max| {
        let listener = http::listen_on(address, connections_max);
        listener.with_context(|| format!("cannot listen on {address}"))
    };
    let main = listen(config.listen, config.connections_max)?;
    let mut admin = Vec::new();
    for at in &config.admin_listen {
        admin.push(match at {
            AdminAddress::Tcp(address) => AdminListener::Tcp(listen(*address, ADMIN_CONNECTIONS)?),
            AdminAddress::Unix(path) => {
                let (listener, file) = bind_socket(path).await?;
                AdminListener::Unix(listener, file)
            }
        });
    }
    let s3 = config.s3_listen.map(|address| listen(address, config.connections_max)).transpose()?;
    Ok(Listeners { main, admin, s3, tls })
}

/// Warnings about the files that the settings name, as they are now.
pub fn warnings(config: &Config) -> Vec<String> {
    tls_files(config).and_then(|files| files.warning()).into_iter().collect()
}

/// The files of TLS, if the settings name them.
fn tls_files(config: &Config) -> Option<TlsFiles> {
    let (cert, key) = config.tls_cert_file.clone().zip(config.tls_key_file.clone())?;
    let crl = config.tls_client_crl_file.clone();
    let required = config.tls_client_auth == ClientAuth::Required;
    let clients = config.tls_client_ca_file.clone().map(|ca| ClientFiles { ca, crl, required });
    Some(TlsFiles { cert, key, clients })
}

/// A socket's file, which goes when this is dropped.
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody else may have put another one there.
        if fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens to a socket that only this user reaches. What is left of a gateway that was killed is replaced.
async fn bind_socket(path: &Path) -> anyhow::Result<(UnixListener, SocketFile)> {
    let cannot = || format!("cannot listen on unix:{}", path.display());
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(cannot),
        Ok(file) if !file.file_type().is_socket() => {
            bail!("{}: there is a file that is no socket", cannot())
        }
        Ok(_) => match UnixStream::connect(path).await {
            Ok(_) => bail!("{}: somebody answers there, another gateway perhaps", cannot()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).with_context(cannot)?;
            }
            Err(error) => return Err(error).with_context(cannot),
        },
    }
    // Nobody gets in before its mode is set: the umask leaves others no right.
    let listener = UnixListener::bind(path).with_context(cannot)?;
    let inode = fs::symlink_metadata(path).with_context(cannot)?.ino();
    let file = SocketFile { path: path.to_owned(), inode };
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).with_context(cannot)?;
    Ok((listener, file))
}

/// What is behind the listeners.
pub(super) struct Served {
    main: Arc<Door>,
    admin: Arc<Door>,
    s3: Option<Arc<Door>>,
}

/// Builds what is behind the listeners.
///
/// # Errors
/// An origin or an upstream of the settings cannot be used.
pub(super) fn build(
    config: &Config,
    engine: &Engine,
    metrics: PrometheusHandle,
    ground: Ground,
    draining: &CancellationToken,
    s3_address: Option<SocketAddr>,
) -> anyhow::Result<Served> {
    let proxies = Proxies::new(config.trusted_proxies.iter().map(|Network(network)| *network));
    let (names, upstreams) = (Arc::new(names(config)?), Upstreams::new(&config.upstreams)?);
    let issuers = Arc::new(Issuers::new(Arc::clone(&engine.runtime().clock))?);
    let exported = Exported::of(&config.metrics_prefix);
    let state = |limits: Limits, bodies_bytes_max: usize, has_page: bool| {
        Arc::new(AppState {
            engine: engine.clone(),
            limits,
            room: Room::new(&limits, bodies_bytes_max, blobs::uploads_max(config)),
            metrics: metrics.clone(),
            exported: exported.clone(),
            draining: draining.clone(),
            guarantee: "strict",
            ground: ground.clone(),
            requires_lock_id: config.requires_lock_id(),
            upstreams: upstreams.clone(),
            issuers: Arc::clone(&issuers),
            doors: Arc::clone(&names),
            s3: s3_address.map(|address| s3_told(config, address)),
            page: has_page.then(|| page(config)),
        })
    };
    let only_proxies = config.tls == TlsBy::Proxy;
    let door =
        |app: App, limits| Door::new(http::router(app), limits, proxies.clone(), only_proxies);
    let limits = limits(config);
    let admin = Limits { connections_max: ADMIN_CONNECTIONS, refused_max: 0, ..limits };
    let app = state(limits, config.bodies_bytes_max, config.has_main_page());
    let main = door(Arc::clone(&app), limits);
    let of_s3 = |keys: &Arc<Keys>| main.beside(s3::router(app, s3_settings(config, keys)));
    Ok(Served {
        s3: engine.s3_keys().filter(|_| s3_address.is_some()).map(of_s3),
        main,
        admin: {
            let bodies_bytes_max = config.bodies_bytes_max / ADMIN_BODIES_SHARE;
            door(state(admin, bodies_bytes_max, config.has_admin_page()), admin)
        },
    })
}

/// Serves all doors until they are closed.
///
/// # Errors
/// One of them cannot be served.
pub(super) async fn serve(
    listeners: Listeners,
    served: Served,
    close: &CancellationToken,
    hard: &CancellationToken,
) -> anyhow::Result<()> {
    let address = listeners.address()?;
    let s3_address = listeners.s3_address()?;
    let Listeners { main, admin, s3, tls } = listeners;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let ends = || (close.clone(), hard.clone());
    let tcp = |listener: TcpListener, door: Arc<Door>| -> BoxFuture<'static, io::Result<()>> {
        let (close, hard) = ends();
        match &tls {
            Some(tls) => {
                let secured = Secured { listener, tls: Arc::clone(tls) };
                Box::pin(http::serve(secured, door, close, hard))
            }
            None => Box::pin(http::serve(listener, door, close, hard)),
        }
    };
    let mut doors: Vec<BoxFuture<'static, io::Result<()>>> = Vec::new();
    for listener in admin {
        let door = Arc::clone(&served.admin);
        doors.push(match listener {
            AdminListener::Tcp(listener) => {
                let address = listener.local_addr().context("cannot read the own address")?;
                tracing::info!("listening for operators on {scheme}://{address}");
                tcp(listener, door)
            }
            AdminListener::Unix(listener, file) => {
                tracing::info!("listening for operators on unix:{}", file.path.display());
                let (close, hard) = ends();
                Box::pin(async move {
                    let _file = file;
                    http::serve(listener, door, close, hard).await
                })
            }
        });
    }
    if let (Some(listener), Some(door), Some(address)) = (s3, served.s3, s3_address) {
        doors.push(tcp(listener, door));
        tracing::info!("listening for S3 on {scheme}://{address}");
    }
    doors.push(tcp(main, served.main));
    tracing::info!("listening on {scheme}://{address}");
    let fresh = async {
        match &tls {
            Some(tls) => tls.keep_fresh().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = try_join_all(doors) => ended.context("cannot serve").map(drop),
        () = fresh => Ok(()),
    }
}

/// What operators have to look at.
fn page(config: &Config) -> Page {
    if config.ui == Ui::Readonly { Page::Readonly } else { Page::Full }
}

/// What callers are told of S3.
fn s3_told(config: &Config, address: SocketAddr) -> S3Told {
    S3Told { endpoint: config.s3_endpoint_at(address), region: config.s3_region.clone() }
}

fn s3_settings(config: &Config, keys: &Arc<Keys>) -> s3::Settings {
    s3::Settings {
        keys: Arc::clone(keys),
        domain: match &config.s3_domain {
            Some(HostName::Name(name)) => Some(name.clone()),
            // Buckets have names below a name alone, as the settings say.
            Some(HostName::Address(_)) | None => None,
        },
        region: config.s3_region.clone(),
        anonymous: config.s3_anonymous,
        once: config.s3_once,
    }
}

fn limits(config: &Config) -> Limits {
    let admin = if config.admin_listen.is_empty() { 0 } else { ADMIN_CONNECTIONS };
    let connections_max = descriptors::connections(config.connections_max, admin);
    Limits {
        inline_bytes_max: usize::try_from(config.inline_bytes_max).unwrap_or(usize::MAX),
        object_bytes_max: config.object_bytes_max,
        upload_timeout: config.upload_timeout,
        upload_rate_min: config.upload_rate_min,
        body_idle_timeout: config.body_idle_timeout,
        body_timeout: config.body_timeout,
        connections_max,
        refused_max: descriptors::beside(connections_max, admin),
        ..Limits::default()
    }
}

fn names(config: &Config) -> anyhow::Result<Doors> {
    let origin = |text: &String| {
        text.parse().with_context(|| format!("cors_origin {text:?} is not an origin"))
    };
    let cors_origins: anyhow::Result<_> = config.cors_origin.iter().map(origin).collect();
    Ok(Doors { server_names: config.server_names.clone(), cors_origins: cors_origins? })
}
