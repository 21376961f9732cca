package helm
