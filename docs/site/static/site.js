// Parts that scroll sideways get the focus, so that the keyboard can scroll them; captions of the navigation say their level.
document.addEventListener("DOMContentLoaded", () => {
  for (const part of document.querySelectorAll("article pre, article .table-wrapper, article p:has(> img)")) {
    part.tabIndex = 0;
  }
  for (const caption of document.querySelectorAll(".caption[role=heading]")) {
    caption.setAttribute("aria-level", "2");
  }
});
