//! Where rows and bodies are kept: three flags that `serve`, `verify` and `backup` share.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::Args;

use super::{ConfigError, Problem};

/// The flags that say where the stores are.
#[derive(Args, Clone, Debug)]
pub struct StoreArgs {
    /// Folder of rows.db and of the bodies; `serve` makes it if it is not there
    #[arg(
        long,
        env = "QUIRE_DATA",
        value_name = "DIR",
        default_value = "./quire-data",
        help_heading = "Storage"
    )]
    pub data: PathBuf,

    /// Row store, sqlite:PATH [default: sqlite:DATA/rows.db]
    #[arg(long, env = "QUIRE_ROWS", value_name = "STORE", hide_env_values = true, help_heading = "Storage")]
    pub rows: Option<StoreName>,

    /// Body store, local:DIR [default: local:DATA/bodies]
    #[arg(
        long,
        env = "QUIRE_BODIES",
        value_name = "STORE",
        hide_env_values = true,
        help_heading = "Storage"
    )]
    pub bodies: Option<StoreName>,
}

impl StoreArgs {
    /// Checks the flags; opens nothing.
    ///
    /// # Errors
    /// Names the first flag that is wrong.
    pub fn check(&self) -> Result<Stores, ConfigError> {
        if self.data.as_os_str().is_empty() {
            return Err(ConfigError::new("--data", Problem::EmptyPath));
        }
        let rows = path_in("--rows", self.rows.as_ref(), "sqlite", &self.data.join("rows.db"))?;
        let bodies = path_in("--bodies", self.bodies.as_ref(), "local", &self.data.join("bodies"))?;
        if rows == bodies {
            return Err(ConfigError::new("--bodies", Problem::SameAs("--rows")));
        }
        Ok(Stores { data: self.data.clone(), rows: RowStore::Sqlite(rows), bodies: BodyStore::Local(bodies) })
    }
}

/// A store as it was written. It may be a URL with a password in it, so it is never shown.
#[derive(Clone)]
pub struct StoreName(String);

impl StoreName {
    /// What was written, to be checked.
    pub(super) fn written(&self) -> &str {
        &self.0
    }
}

impl FromStr for StoreName {
    type Err = std::convert::Infallible;

    // What it names is checked later, by code whose errors do not repeat it; clap's would.
    fn from_str(written: &str) -> Result<Self, Self::Err> {
        Ok(Self(written.to_owned()))
    }
}

impl fmt::Debug for StoreName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreName(..)")
    }
}

/// Where everything is kept, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stores {
    /// The folder that one server at a time may own.
    pub data: PathBuf,
    /// The row store.
    pub rows: RowStore,
    /// The body store.
    pub bodies: BodyStore,
}

/// A row store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowStore {
    /// A database in one file, by its path.
    Sqlite(PathBuf),
}

/// A body store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyStore {
    /// Volumes, by the path of their folder.
    Local(PathBuf),
}

fn path_in(
    flag: &'static str,
    name: Option<&StoreName>,
    scheme: &'static str,
    default: &Path,
) -> Result<PathBuf, ConfigError> {
    let Some(StoreName(written)) = name else { return Ok(default.to_owned()) };
    let problem = match written.split_once(':') {
        Some((given, path)) if given == scheme && !path.is_empty() => return Ok(PathBuf::from(path)),
        Some((given, _)) if given == scheme => Problem::EmptyPath,
        Some(("postgres" | "postgresql", _)) if scheme == "sqlite" => Problem::NotYet("PostgreSQL"),
        Some(("s3", _)) if scheme == "local" => Problem::NotYet("S3-compatible buckets"),
        Some(("file", _)) if scheme == "local" => Problem::NotYet("file:// folders"),
        _ if scheme == "sqlite" => Problem::UnknownStore("sqlite:PATH"),
        _ => Problem::UnknownStore("local:DIR"),
    };
    Err(ConfigError::new(flag, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(rows: Option<&str>, bodies: Option<&str>) -> StoreArgs {
        let name = |written: &str| StoreName(written.to_owned());
        StoreArgs { data: PathBuf::from("d"), rows: rows.map(name), bodies: bodies.map(name) }
    }

    #[test]
    fn the_stores_are_in_the_data_folder_unless_told_otherwise() {
        let stores = args(None, None).check().unwrap();
        assert_eq!(stores.rows, RowStore::Sqlite(PathBuf::from("d/rows.db")));
        assert_eq!(stores.bodies, BodyStore::Local(PathBuf::from("d/bodies")));
        let stores = args(Some("sqlite:/a/r.db"), Some("local:../b")).check().unwrap();
        assert_eq!(stores.rows, RowStore::Sqlite(PathBuf::from("/a/r.db")));
        assert_eq!(stores.bodies, BodyStore::Local(PathBuf::from("../b")));
    }

    #[test]
    fn what_is_wrong_is_said_by_flag_and_without_the_value() {
        for (rows, bodies, said) in [
            (Some("postgres://me:hunter2@db/q"), None, "--rows: this version does not have PostgreSQL yet"),
            (Some("hunter2:x"), None, "--rows: names no store"),
            (Some("hunter2"), None, "--rows: names no store"),
            (Some("sqlite:"), None, "--rows: must not be empty"),
            (None, Some("s3://hunter2/p"), "--bodies: this version does not have S3-compatible buckets yet"),
            (None, Some("file:///hunter2"), "--bodies: this version does not have file:// folders yet"),
            (None, Some("sqlite:hunter2"), "--bodies: names no store"),
            (None, Some(""), "--bodies: names no store"),
            (Some("sqlite:hunter2"), Some("local:hunter2"), "--bodies: is the same as --rows"),
        ] {
            let args = args(rows, bodies);
            let error = args.check().unwrap_err();
            let shown = error.to_string();
            assert!(shown.starts_with(said), "{shown}");
            assert!(!format!("{args:?} {error:?} {error}").contains("hunter2"), "{shown}");
        }
        let empty = StoreArgs { data: PathBuf::new(), ..args(None, None) };
        assert_eq!(empty.check().unwrap_err().flag(), "--data");
    }
}
