// Package browser tests the page of 'dovetail view' in a headless Chromium (make browser): the page shows synthetic clusters of 10, 300 and 2,000
// nodes, and its numbers must be those of the clusters' objects. It takes screenshots, light and dark, and measures the browser's time and memory.
package browser
