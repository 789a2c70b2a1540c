"""A real headless Chromium for tests, which must be installed with its driver, and what they ask of every page."""

import os
import shutil
from io import BytesIO

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

DESKTOP, PHONE = (1200, 800), (390, 844)


@pytest.fixture(scope="module")
def chromium():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    assert options.binary_location, "wanted Chromium: apt-get install chromium chromium-driver"
    for argument in ("--headless=new", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        # Chromium's sandbox does not run for root, who runs containers.
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield browser
    browser.quit()


def show_as(browser, size, scheme="light"):
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )


def find(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector)


def keep(png, path):
    """Save a picture with 256 colours, which is small."""
    from PIL import Image

    Image.open(BytesIO(png)).convert("RGB").quantize(256).save(path, optimize=True)


# Contrast of each element that has text with the ground behind it, as WCAG 2.2 defines it, and the required contrast.
CONTRASTS = """
const pixel = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
const parse = text => {
  pixel.clearRect(0, 0, 1, 1);
  pixel.fillStyle = text;
  pixel.fillRect(0, 0, 1, 1);
  return [...pixel.getImageData(0, 0, 1, 1).data];
};
const luminance = rgb => {
  const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const found = [];
for (const element of document.querySelectorAll('body *')) {
  const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  if (!own || !element.checkVisibility() || element.closest('[aria-hidden=true]')) continue;
  const style = getComputedStyle(element);
  let ground = element;
  while (parse(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
  const [a, b] = [style.color, getComputedStyle(ground).backgroundColor].map(c => luminance(parse(c).slice(0, 3)));
  const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
  found.push([element.textContent.trim(), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), large ? 3 : 4.5]);
}
return found;
"""
