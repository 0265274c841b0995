"""Tests of the console's pages: its files, its pure modules in Node, and every view in a browser."""
