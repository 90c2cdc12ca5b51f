//! Lets a test end a part of the process. Release builds lack it.

/// Panics when the file that `ALICLOUD_CCM_TEST_PANIC` names holds the name of this part; never returns otherwise.
pub(super) async fn injected(part: &str) {
    #[cfg(debug_assertions)]
    if let Some(path) = std::env::var_os("ALICLOUD_CCM_TEST_PANIC") {
        loop {
            if std::fs::read_to_string(&path).is_ok_and(|text| text == part) {
                let _ = std::fs::remove_file(&path);
                panic!("a test asked for it");
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    let _ = part;
    std::future::pending().await
}
