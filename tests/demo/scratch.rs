//! scratch
use futures_util::{SinkExt, StreamExt};
use std::time::{Duration, Instant};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let address = args[1].clone();
    let agents: usize = args[2].parse()?;
    let secs: u64 = args[3].parse()?;
    let ack: u64 = args[4].parse()?;
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    rt.block_on(async move {
        let mut tasks = Vec::new();
        let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(agents));
        for n in 0..agents {
            let (address, barrier) = (address.clone(), barrier.clone());
            tasks.push(tokio::spawn(async move {
                let mut request = format!("ws://{address}/acp").into_client_request()?;
                request.headers_mut().insert("Sec-WebSocket-Protocol", "c3po.acp.v1".parse()?);
                let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(0);
                let (mut ws, _) = tokio_tungstenite::connect_async_with_config(request, Some(config), true).await?;
                let inst = uuid::Uuid::new_v4();
                ws.send(Message::text(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"hello","params":{{"protocol_version":"1.0","name":"s-{n}","host":"h","instance":"{inst}","client":{{"name":"t","version":"0"}}}}}}"#))).await?;
                ws.next().await;
                barrier.wait().await;
                let began = Instant::now();
                let (mut sent, mut id, mut ids) = (0u64, 10u64, Vec::<String>::new());
                let target = (n + 1) % agents;
                while began.elapsed() < Duration::from_secs(secs) {
                    id += 1;
                    let call = uuid::Uuid::now_v7();
                    let text = if ack > 0 && ids.len() as u64 >= ack {
                        let list = ids.drain(..).map(|i| format!("\"{i}\"")).collect::<Vec<_>>().join(",");
                        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"call","params":{{"call_id":"{call}","tool":"ack_messages","arguments":{{"message_ids":[{list}]}}}}}}"#)
                    } else {
                        sent += 1;
                        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"call","params":{{"call_id":"{call}","tool":"send_message","arguments":{{"target":"s-{target}","message":"What MQTT topics are available?"}}}}}}"#)
                    };
                    ws.send(Message::text(text)).await?;
                    let want = format!("\"id\":{id}");
                    loop {
                        let Some(m) = ws.next().await else { anyhow::bail!("closed") };
                        let Message::Text(t) = m? else { continue };
                        if t.contains("\"deliver\"") {
                            let mut rest = t.as_str();
                            while let Some(at) = rest.find("{\"id\":\"") { let r = &rest[at + 7..]; let e = r.find('"').unwrap_or(0); ids.push(r[..e].to_owned()); rest = &r[e..]; }
                            let at = t.find("\"id\":").unwrap_or(0) + 5;
                            let num: String = t[at..].chars().take_while(char::is_ascii_digit).collect();
                            ws.send(Message::text(format!(r#"{{"jsonrpc":"2.0","id":{num},"result":{{}}}}"#))).await?;
                        } else if t.contains(&want) {
                            if t.contains("\"error\"") { anyhow::bail!("{t}"); }
                            break;
                        }
                    }
                }
                anyhow::Ok(sent)
            }));
        }
        let mut sum = 0;
        for t in tasks { sum += t.await??; }
        println!("{} /s", sum / secs);
        anyhow::Ok(())
    })
}
