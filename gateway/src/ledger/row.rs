//! The macro for rows that a statement answers. The derive of sqlx does the same, but needs both database drivers, which are
//! then compiled once more for the compiler's own use.

/// Defines a structure that is read from a row, of any database, each field from the column of its name. A field behind `..`
/// is itself such a structure, of some of the same row's columns; it comes last.
macro_rules! row {
    (
        $(#[$attribute:meta])*
        $visible:vis struct $name:ident {
            $($(#[$of_field:meta])* $seen:vis $field:ident: $type:ty,)*
            $(..$part:ident: $structure:ty,)*
        }
    ) => {
        $(#[$attribute])*
        $visible struct $name {
            $($(#[$of_field])* $seen $field: $type,)*
            $($part: $structure,)*
        }

        impl<'r, R> sqlx::FromRow<'r, R> for $name
        where
            R: sqlx::Row,
            &'static str: sqlx::ColumnIndex<R>,
            $($type: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,)*
            $($structure: sqlx::FromRow<'r, R>,)*
        {
            fn from_row(row: &'r R) -> sqlx::Result<Self> {
                Ok(Self {
                    $($field: row.try_get(stringify!($field))?,)*
                    $($part: sqlx::FromRow::from_row(row)?,)*
                })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, SqliteConnection};

    row! {
        #[derive(Debug, PartialEq)]
        struct Outer {
            text: String,
            number: Option<i64>,
            ..inner: Inner,
        }
    }

    row! {
        #[derive(Debug, PartialEq)]
        struct Inner {
            flag: bool,
        }
    }

    async fn read(sql: &'static str) -> sqlx::Result<Outer> {
        let mut connection = SqliteConnection::connect(":memory:").await?;
        sqlx::query_as(sql).fetch_one(&mut connection).await
    }

    #[tokio::test]
    async fn columns_are_found_by_name_wherever_they_are() {
        let row = read("SELECT 1 AS flag, 7 AS other, NULL AS number, 'a' AS text").await;
        let expected = Outer { text: "a".into(), number: None, inner: Inner { flag: true } };
        assert_eq!(row.expect("it is read"), expected);
    }

    #[tokio::test]
    async fn a_column_that_is_missing_and_one_of_another_type_are_errors() {
        let missing = read("SELECT 1 AS number, 'a' AS text").await;
        assert!(matches!(missing, Err(sqlx::Error::ColumnNotFound(name)) if name == "flag"));
        let other = read("SELECT 1 AS flag, 'b' AS number, 'a' AS text").await;
        assert!(
            matches!(other, Err(sqlx::Error::ColumnDecode { index, .. }) if index == "\"number\"")
        );
    }
}
