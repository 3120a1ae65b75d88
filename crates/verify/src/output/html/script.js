for (const time of document.querySelectorAll("time"))
  time.textContent = new Date(1000 * time.dataset.unix).toLocaleString();
for (const button of document.querySelectorAll("button[data-copy]"))
  button.onclick = async () => {
    try { await navigator.clipboard.writeText(button.dataset.copy); button.textContent = "copied"; }
    catch { getSelection().selectAllChildren(button.previousElementSibling); button.textContent = "press Ctrl-C"; }
  };
const input = document.getElementById("filter"), count = document.getElementById("count");
const rows = [...document.querySelectorAll("#problems tbody tr")].map(row => [row, row.textContent.toLowerCase()]);
const show = () => {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const [row, text] of rows) {
    const hit = words.every(word => text.includes(word));
    row.hidden = !hit;
    shown += hit;
  }
  count.textContent = `${shown} of ${rows.length}`;
};
input.oninput = show;
show();
