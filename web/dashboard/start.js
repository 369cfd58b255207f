// start.js - runs the page once its frame is painted: the scripts would hold the first paint up.  A tab in the background paints nothing.
const run = () => import('./app.js');
if (document.hidden) run();
else requestAnimationFrame(() => setTimeout(run));
